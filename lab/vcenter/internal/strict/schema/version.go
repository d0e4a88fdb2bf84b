package schema

import (
	"slices"
	"strings"
)

// Line is one of the two version histories the API has: vSAN (and with it CNS) counts on its own.
type Line int

// The histories. PBM and VSLM follow vim25.
const (
	Vim Line = iota
	VSAN
)

// Since is the first version that knows a type, field or method. The zero value means every release we simulate.
type Since struct {
	Line Line
	Rank int
}

// Release is how much of the API one request may use, a rank in each history.
type Release struct {
	Vim, VSAN int
}

// Knows tells whether something that exists since s exists in this release.
func (r Release) Knows(s Since) bool {
	if s.Line == VSAN {
		return s.Rank <= r.VSAN
	}
	return s.Rank <= r.Vim
}

// Rank is the place of a version in its history, counted from 1; 0 if the history does not name it.
func (t *Table) Rank(line Line, version string) int {
	return slices.Index(t.versions[line], version) + 1
}

// Newest is the rank of the last version that is not newer than the dotted version given, by its numbers.
// It serves versions a server may name but the history does not, like vSAN 8.0.3.0.
func (t *Table) Newest(line Line, version string) int {
	best := 0
	for i, v := range t.versions[line] {
		if Dotted(v) && CompareDotted(v, version) <= 0 {
			best = i + 1
		}
	}
	return best
}

// Until lists the versions of a history that are not newer than the given one, newest first, without the names of
// development builds.
func (t *Table) Until(line Line, version string) []string {
	last := t.Rank(line, version)
	if last == 0 {
		last = t.Newest(line, version)
	}
	var versions []string
	for _, v := range slices.Backward(t.versions[line][:last]) {
		if Dotted(v) || strings.Contains(v, " ") {
			versions = append(versions, v)
		}
	}
	return versions
}

// noted turns a version in govmomi's struct tags into a mark. Old versions get none, as in the table.
func (t *Table) noted(version string) Since {
	rank := t.Rank(Vim, version)
	if rank == 0 || rank <= t.Rank(Vim, OldestVim) {
		return Since{}
	}
	return Since{Line: Vim, Rank: rank}
}

// Dotted tells whether a version is made of numbers and dots only, with a digit first.
func Dotted(version string) bool {
	digit := false
	for _, c := range version {
		switch {
		case c >= '0' && c <= '9':
			digit = true
		case c == '.' && digit:
			digit = false
		default:
			return false
		}
	}
	return digit
}

// CompareDotted orders two dotted versions by their numbers; a missing number counts as 0.
func CompareDotted(a, b string) int {
	for a != "" || b != "" {
		var x, y int
		x, a = leadingNumber(a)
		y, b = leadingNumber(b)
		if x != y {
			if x < y {
				return -1
			}
			return 1
		}
	}
	return 0
}

// leadingNumber cuts the first number off a dotted version. Numbers beyond any real version are capped.
func leadingNumber(v string) (int, string) {
	const enough = 1 << 30
	n := 0
	for i := 0; i < len(v); i++ {
		if v[i] == '.' {
			return n, v[i+1:]
		}
		if n < enough {
			n = n*10 + int(v[i]-'0')
		}
	}
	return n, ""
}

// OldestVim is the version of the oldest release we simulate, vCenter 6.7U3. What is not newer carries no mark.
const OldestVim = "6.7.3"
