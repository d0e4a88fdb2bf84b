package world

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"sort"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Problem is one mistake in a description: where it is and what to do about it.
type Problem struct {
	Line  int
	Field string // path such as datacenters[0].vms[1].uuid
	Text  string
}

// Problems are all mistakes of a description, in the order of their lines. The author sees them at once, not one per try.
type Problems []Problem

// Error has one line per problem: LINE: FIELD: PROBLEM.
func (p Problems) Error() string {
	return strings.Join(p.Lines(""), "\n")
}

// Lines gives "FILE:LINE: FIELD: PROBLEM" for every problem; without a file name the prefix is left out.
func (p Problems) Lines(file string) []string {
	if file != "" {
		file += ":"
	}
	lines := make([]string, 0, len(p))
	for _, problem := range p {
		lines = append(lines, fmt.Sprintf("%s%d: %s: %s", file, problem.Line, problem.Field, problem.Text))
	}
	return lines
}

// source remembers where each field was written, so that the checks that come after decoding can name the line too.
type source struct {
	lines    map[string]int
	problems Problems
}

// complain adds a problem at the line of field, or of the nearest enclosing field that the author wrote.
func (s *source) complain(field, format string, args ...any) {
	line := 1
	for at := field; ; {
		if l, ok := s.lines[at]; ok {
			line = l
			break
		}
		cut := strings.LastIndexAny(at, ".[")
		if cut < 0 {
			if l, ok := s.lines[""]; ok {
				line = l
			}
			break
		}
		at = at[:cut]
	}
	s.complainAt(line, field, format, args...)
}

func (s *source) complainAt(line int, field, format string, args ...any) {
	if field == "" {
		field = "description"
	}
	s.problems = append(s.problems, Problem{Line: line, Field: field, Text: fmt.Sprintf(format, args...)})
}

func (s *source) sorted() Problems {
	sort.SliceStable(s.problems, func(i, j int) bool { return s.problems[i].Line < s.problems[j].Line })
	return s.problems
}

// scalar is a type that reads itself from one YAML word, such as Size.
type scalar interface {
	parse(text string) error
}

// documents splits the input into the YAML documents it holds: one vCenter each.
func documents(in io.Reader) ([]*yaml.Node, *Problem) {
	var nodes []*yaml.Node
	for decoder := yaml.NewDecoder(in); ; {
		node := new(yaml.Node)
		switch err := decoder.Decode(node); {
		case errors.Is(err, io.EOF):
			return nodes, nil
		case err != nil:
			line, text := yamlError(err)
			return nil, &Problem{Line: line, Field: "description", Text: "is no YAML: " + text}
		}
		nodes = append(nodes, node)
	}
}

// yamlError takes the line out of the parser's message, which has the form "yaml: line 3: problem".
func yamlError(err error) (int, string) {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		if number, problem, ok := strings.Cut(rest, ": "); ok {
			if line, err := strconv.Atoi(number); err == nil {
				return line, problem
			}
		}
	}
	return 1, text
}

// decode fills the value from the node and notes the line of everything it meets.
func (s *source) decode(node *yaml.Node, field string, into reflect.Value) {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	s.lines[field] = node.Line
	if node.Kind == yaml.ScalarNode && node.Tag == "!!null" {
		return // an empty field is the same as a field that is not there
	}
	if word, ok := into.Addr().Interface().(scalar); ok {
		if text, ok := s.word(node, field); ok {
			if err := word.parse(text); err != nil {
				s.complainAt(node.Line, field, "%s", err)
			}
		}
		return
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		s.decode(node, field, into.Elem())
	case reflect.Struct:
		s.decodeStruct(node, field, into)
	case reflect.Slice:
		s.decodeList(node, field, into)
	case reflect.Map:
		s.decodeMap(node, field, into)
	default:
		s.decodeWord(node, field, into)
	}
}

func (s *source) decodeStruct(node *yaml.Node, field string, into reflect.Value) {
	if node.Kind != yaml.MappingNode {
		s.complainAt(node.Line, field, "must be a block of fields, not %s", kindName(node))
		return
	}
	known := map[string]int{}
	var names []string
	for i := range into.NumField() {
		if name := into.Type().Field(i).Tag.Get("yaml"); name != "" {
			known[name] = i
			names = append(names, name)
		}
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		path := join(field, key.Value)
		index, ok := known[key.Value]
		if !ok {
			s.complainAt(key.Line, path, "unknown field%s", suggestion(key.Value, names))
			continue
		}
		if first, twice := seen[key.Value]; twice {
			s.complainAt(key.Line, path, "is given twice; the first is in line %d", first)
			continue
		}
		seen[key.Value] = key.Line
		s.decode(value, path, into.Field(index))
	}
}

func (s *source) decodeList(node *yaml.Node, field string, into reflect.Value) {
	if node.Kind != yaml.SequenceNode {
		s.complainAt(node.Line, field, "must be a list, not %s", kindName(node))
		return
	}
	list := reflect.MakeSlice(into.Type(), len(node.Content), len(node.Content))
	for i, item := range node.Content {
		s.decode(item, fmt.Sprintf("%s[%d]", field, i), list.Index(i))
	}
	into.Set(list)
}

// decodeMap reads free-form settings, whose names another package checks.
func (s *source) decodeMap(node *yaml.Node, field string, into reflect.Value) {
	if node.Kind != yaml.MappingNode {
		s.complainAt(node.Line, field, "must be a block of fields, not %s", kindName(node))
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		s.lines[join(field, node.Content[i].Value)] = node.Content[i].Line
	}
	if err := node.Decode(into.Addr().Interface()); err != nil {
		line, text := yamlError(err)
		s.complainAt(max(line, node.Line), field, "%s", text)
	}
}

func (s *source) decodeWord(node *yaml.Node, field string, into reflect.Value) {
	text, ok := s.word(node, field)
	if !ok {
		return
	}
	switch into.Kind() {
	case reflect.String:
		into.SetString(text)
	case reflect.Bool:
		var value bool
		if err := node.Decode(&value); err != nil {
			s.complainAt(node.Line, field, "must be true or false, not %q", text)
			return
		}
		into.SetBool(value)
	case reflect.Int, reflect.Int32, reflect.Int64:
		value, err := strconv.ParseInt(text, 10, into.Type().Bits())
		if err != nil {
			s.complainAt(node.Line, field, "must be a whole number, not %q", text)
			return
		}
		into.SetInt(value)
	}
}

func (s *source) word(node *yaml.Node, field string) (string, bool) {
	if node.Kind != yaml.ScalarNode {
		s.complainAt(node.Line, field, "must be one word, not %s", kindName(node))
		return "", false
	}
	return node.Value, true
}

func kindName(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a block of fields"
	case yaml.SequenceNode:
		return "a list"
	default:
		return fmt.Sprintf("%q", node.Value)
	}
}

func join(field, name string) string {
	if field == "" {
		return name
	}
	return field + "." + name
}

// suggestion names the known word that is nearest to a misspelt one, or all of them when none is near.
func suggestion(word string, known []string) string {
	best, distance := "", len(word)/2+1
	for _, name := range known {
		if d := editDistance(strings.ToLower(word), strings.ToLower(name)); d < distance {
			best, distance = name, d
		}
	}
	if best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	sorted := append([]string(nil), known...)
	sort.Strings(sorted)
	return "; known are " + strings.Join(sorted, ", ")
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := diagonal
			if a[i-1] != b[j-1] {
				change++
			}
			diagonal = row[j]
			row[j] = min(change, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
