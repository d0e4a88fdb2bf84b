package strict

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"vsphere-drivers.example/lab/vcenter/internal/strict/schema"
)

// simple checks a value without elements.
func (d *document) simple(text string, v schema.Value) *refusal {
	trimmed := strings.TrimSpace(text)
	ok := true
	switch v.Kind {
	case schema.Bool:
		ok = trimmed == "true" || trimmed == "false" || trimmed == "1" || trimmed == "0"
	case schema.Integer:
		_, err := strconv.ParseInt(trimmed, 10, v.Bits)
		ok = err == nil
	case schema.Float:
		_, err := strconv.ParseFloat(trimmed, v.Bits)
		// Go also reads hexadecimal numbers and digits in groups.
		ok = err == nil && !strings.ContainsAny(trimmed, "xX_")
	case schema.DateTime:
		_, err := time.Parse(time.RFC3339, trimmed)
		ok = err == nil
	case schema.Base64:
		_, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
		ok = err == nil
	case schema.Enum:
		values := d.service.types.EnumValues(v.Type)
		if len(values) > 0 && !slices.Contains(values, text) {
			return refuse("Unknown value %q of enumeration %s", clip(text), v.Type.Name())
		}
	}
	if !ok {
		return refuse("Value %q is no xsd:%s", clip(text), simpleName(v))
	}
	return nil
}

// simpleName is the XML Schema name of a simple type.
func simpleName(v schema.Value) string {
	switch v.Kind {
	case schema.Bool:
		return "boolean"
	case schema.Integer:
		return map[int]string{8: "byte", 16: "short", 32: "int", 64: "long"}[v.Bits]
	case schema.Float:
		return map[int]string{32: "float", 64: "double"}[v.Bits]
	case schema.DateTime:
		return "dateTime"
	case schema.Base64:
		return "base64Binary"
	default:
		return "string"
	}
}
