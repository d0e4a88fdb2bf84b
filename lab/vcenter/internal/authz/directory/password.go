package directory

import (
	"fmt"
	"unicode"
)

// PasswordPolicy is the format vCenter's local accounts must follow.
type PasswordPolicy struct {
	MinLength, MaxLength           int
	MinUpper, MinLower             int
	MinNumeric, MinSpecial         int
	MinAlphabetic                  int
	MaxIdenticalAdjacent           int
	LifetimeDays, ProhibitedReuses int
	Description                    string
}

// Policy is vCenter's default password policy.
func (d *Directory) Policy() PasswordPolicy {
	return PasswordPolicy{
		MinLength: 8, MaxLength: 20, MinUpper: 1, MinLower: 1, MinNumeric: 1, MinSpecial: 1, MinAlphabetic: 2,
		MaxIdenticalAdjacent: 3, LifetimeDays: 90, ProhibitedReuses: 5,
		Description: "password policy of " + d.domain,
	}
}

// CheckPassword tells whether a password follows the policy, and which rule it breaks.
func (d *Directory) CheckPassword(password string) error {
	policy := d.Policy()
	var upper, lower, digit, special, run, longest int
	var last rune
	for _, c := range password {
		switch {
		case unicode.IsUpper(c):
			upper++
		case unicode.IsLower(c):
			lower++
		case unicode.IsDigit(c):
			digit++
		default:
			special++
		}
		if c == last {
			run++
		} else {
			run, last = 1, c
		}
		longest = max(longest, run)
	}
	length := len([]rune(password))
	rules := []struct {
		broken bool
		rule   string
	}{
		{length < policy.MinLength, fmt.Sprintf("at least %d characters", policy.MinLength)},
		{length > policy.MaxLength, fmt.Sprintf("at most %d characters", policy.MaxLength)},
		{upper < policy.MinUpper, "an upper-case letter"},
		{lower < policy.MinLower, "a lower-case letter"},
		{upper+lower < policy.MinAlphabetic, fmt.Sprintf("at least %d letters", policy.MinAlphabetic)},
		{digit < policy.MinNumeric, "a digit"},
		{special < policy.MinSpecial, "a special character"},
		{longest > policy.MaxIdenticalAdjacent, fmt.Sprintf("at most %d equal characters in a row", policy.MaxIdenticalAdjacent)},
	}
	for _, r := range rules {
		if r.broken {
			return fmt.Errorf("%w: it needs %s", ErrPassword, r.rule)
		}
	}
	return nil
}
