package main

import (
	"fmt"
	"strconv"
	"strings"
)

// call is one line of pyVmomi's tables: a function name and its arguments.
// An argument is a string, an int (flags joined with |), nil for None, or a []any for a list or tuple.
type call struct {
	name string
	args []any
}

// flags are the names pyVmomi uses for numbers.
var flags = map[string]int{"F_LINK": 1, "F_LINKABLE": 2, "F_OPTIONAL": 4, "F_SECRET": 8, "True": 1, "False": 0}

const optional = 4

// parseCall reads NAME(ARGUMENTS); ok is false for lines that are not calls.
func parseCall(line string) (c call, ok bool, err error) {
	name, rest, found := strings.Cut(strings.TrimSpace(line), "(")
	if !found || name == "" || strings.ContainsAny(name, " =#\"'") || !strings.HasSuffix(rest, ")") {
		return call{}, false, nil
	}
	p := &literals{text: rest}
	args, err := p.list(')')
	if err != nil {
		return call{}, false, fmt.Errorf("%s: %w", name, err)
	}
	return call{name: name, args: args}, true, nil
}

// literals reads Python literals off a text.
type literals struct{ text string }

func (p *literals) skip() { p.text = strings.TrimLeft(p.text, " \t") }

// list reads values up to the closing character, which it consumes.
func (p *literals) list(closing byte) ([]any, error) {
	values := []any{}
	for {
		p.skip()
		switch {
		case p.text == "":
			return nil, fmt.Errorf("list without its %q", closing)
		case p.text[0] == closing:
			p.text = p.text[1:]
			return values, nil
		case p.text[0] == ',':
			p.text = p.text[1:]
			continue
		}
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
}

func (p *literals) value() (any, error) {
	switch p.text[0] {
	case '(':
		p.text = p.text[1:]
		return p.list(')')
	case '[':
		p.text = p.text[1:]
		return p.list(']')
	case '"':
		text, rest, found := strings.Cut(p.text[1:], `"`)
		if !found {
			return nil, fmt.Errorf("string without its end: %.40s", p.text)
		}
		p.text = rest
		return text, nil
	}
	end := strings.IndexAny(p.text, ",)]")
	if end < 0 {
		end = len(p.text)
	}
	word := strings.TrimSpace(p.text[:end])
	p.text = p.text[end:]
	if word == "None" {
		return nil, nil
	}
	sum := 0
	for _, part := range strings.Split(word, "|") {
		part = strings.TrimSpace(part)
		if n, err := strconv.Atoi(part); err == nil {
			sum |= n
		} else if n, ok := flags[part]; ok {
			sum |= n
		} else {
			return nil, fmt.Errorf("unknown word %q", part)
		}
	}
	return sum, nil
}
