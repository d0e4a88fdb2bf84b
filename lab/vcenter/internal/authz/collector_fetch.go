package authz

import (
	"reflect"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// fetchBody is the answer to Fetch, without a value for a property that is not set.
type fetchBody struct {
	Res    *fetchResponse `xml:"urn:vim25 FetchResponse,omitempty"`
	Fault_ *soap.Fault    `xml:"http://schemas.xmlsoap.org/soap/envelope/ Fault,omitempty"`
}

func (b *fetchBody) Fault() *soap.Fault { return b.Fault_ }

type fetchResponse struct {
	Returnval types.AnyType `xml:"returnval,omitempty,typeattr"`
}

// Fetch reads one property by name, as VMware's Python client does for every one. The library leaves half of the service
// content out and answers with another method's element when a property is not set. The type of its request
// cannot be named here.
func (c *propertyCollector) Fetch(ctx *simulator.Context, request any) soap.HasFault {
	this, property := fetched(request)
	if this == vim25.ServiceInstance && property == "content" {
		return c.a.FetchWithoutSession(request)
	}
	if base := this.Type == "ManagedEntity" || this.Type == "ComputeResource"; base && ctx.Map.Get(this) == nil {
		return c.fetchByBase(ctx, request)
	}
	read, ok := c.RetrievePropertiesEx(ctx, &types.RetrievePropertiesEx{SpecSet: []types.PropertyFilterSpec{{
		PropSet:   []types.PropertySpec{{Type: this.Type, PathSet: []string{property}}},
		ObjectSet: []types.ObjectSpec{{Obj: this}},
	}}}).(*methods.RetrievePropertiesExBody)
	if !ok || read.Fault_ != nil {
		return &fetchBody{Fault_: read.Fault_}
	}
	body := &fetchBody{Res: new(fetchResponse)}
	if read.Res.Returnval == nil {
		return body
	}
	for _, object := range read.Res.Returnval.Objects {
		for _, missing := range object.MissingSet {
			return &fetchBody{Fault_: simulator.Fault(missing.Fault.LocalizedMessage, missing.Fault.Fault)}
		}
		for _, set := range object.PropSet {
			body.Res.Returnval = set.Val
		}
	}
	return body
}

// FetchWithoutSession reads what is there for everyone: the service content, and the current session, which is not set.
func (a *Authz) FetchWithoutSession(request any) soap.HasFault {
	body := &fetchBody{Res: new(fetchResponse)}
	if this, _ := fetched(request); this == vim25.ServiceInstance {
		body.Res.Returnval = contentOf(a.vim)
	}
	return body
}

// fetched is the object and the property that are asked for.
func fetched(request any) (this types.ManagedObjectReference, property string) {
	this, _ = reflect.ValueOf(request).Elem().FieldByName("This").Interface().(types.ManagedObjectReference)
	return this, stringField(request, "Prop")
}

// fetchByBase lets the library find an object that is named by a type it inherits from.
func (c *propertyCollector) fetchByBase(ctx *simulator.Context, request any) soap.HasFault {
	fetch := reflect.ValueOf(&c.PropertyCollector).MethodByName("Fetch")
	body, _ := fetch.Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(request)})[0].Interface().(soap.HasFault)
	return body
}
