package traffic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"
)

// MakeFault makes a vSphere fault from its type's name and its fields in JSON, spelt as in the API. Fields of an
// abstract type carry "_typeName".
func MakeFault(name string, fields json.RawMessage) (types.BaseMethodFault, error) {
	kind, ok := lookupType(name)
	if !ok {
		return nil, fmt.Errorf("fault: vSphere has no type %q", name)
	}
	value := reflect.New(kind).Interface()
	fault, ok := value.(types.BaseMethodFault)
	if !ok {
		return nil, fmt.Errorf("fault: %q is no fault", name)
	}
	if len(bytes.TrimSpace(fields)) > 0 {
		err := checkFields(kind, fields)
		if err == nil {
			err = types.NewJSONDecoder(bytes.NewReader(fields)).Decode(value)
		}
		if err != nil {
			return nil, fmt.Errorf("fields: %s", strings.TrimPrefix(err.Error(), "json: "))
		}
	}
	return fault, nil
}

// typeName is the field that says of what type an object is.
const typeName = "_typeName"

// checkFields refuses fields that a type does not have. The decoder can do so only where no object says its own type, so
// each object that does is checked by itself.
func checkFields(kind reflect.Type, fields json.RawMessage) error {
	var tree any
	if err := json.Unmarshal(fields, &tree); err != nil {
		return err
	}
	var inner []map[string]any
	plain, err := json.Marshal(withoutTyped(tree, &inner))
	if err != nil {
		return err
	}
	decoder := types.NewJSONDecoder(bytes.NewReader(plain))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(reflect.New(kind).Interface()); err != nil {
		return err
	}
	for _, object := range inner {
		name := fmt.Sprint(object[typeName])
		kind, ok := lookupType(name)
		if !ok {
			return fmt.Errorf("vSphere has no type %q", name)
		}
		delete(object, typeName)
		own, err := json.Marshal(object)
		if err == nil {
			err = checkFields(kind, own)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// withoutTyped copies a value without the objects that say their type, and collects those.
func withoutTyped(value any, typed *[]map[string]any) any {
	switch v := value.(type) {
	case []any:
		list := []any{}
		for _, one := range v {
			if kept := withoutTyped(one, typed); kept != nil {
				list = append(list, kept)
			}
		}
		return list
	case map[string]any:
		if _, ok := v[typeName]; ok {
			*typed = append(*typed, v)
			return nil
		}
		object := map[string]any{}
		for name, one := range v {
			object[name] = withoutTyped(one, typed)
		}
		return object
	}
	return value
}

// lookupType finds a type by its bare name; the types of some services are registered with a prefix.
func lookupType(name string) (reflect.Type, bool) {
	for _, prefix := range []string{"", "vsan:", "pbm:", "vslm:", "sso:"} {
		if kind, ok := types.TypeFunc()(prefix + name); ok && kind.Kind() == reflect.Struct {
			return kind, true
		}
	}
	return nil, false
}

// Text is what a client shows for the fault.
func Text(fault types.BaseMethodFault) string {
	switch f := fault.(type) {
	case *cnstypes.CnsFault:
		return f.Reason
	case interface{ GetRuntimeFault() *types.RuntimeFault }, interface{ GetVimFault() *types.VimFault }:
		return "An error occurred: " + reflect.TypeOf(f).Elem().Name()
	}
	return reflect.TypeOf(fault).Elem().Name()
}
