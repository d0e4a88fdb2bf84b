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
		decoder := types.NewJSONDecoder(bytes.NewReader(fields))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(value); err != nil {
			return nil, fmt.Errorf("fields: %s", strings.TrimPrefix(err.Error(), "json: "))
		}
	}
	return fault, nil
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
