package authz

import (
	"slices"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// searchIndex is a session's twin of the SearchIndex. It hides what the user cannot see and, unlike the stock one,
// searches only the datacenter a request names.
type searchIndex struct {
	simulator.SearchIndex
	a *Authz
}

func newSearchIndex(a *Authz, self types.ManagedObjectReference) *searchIndex {
	i := &searchIndex{a: a}
	i.Self = self
	return i
}

// found filters hits; the order is made stable because the stock one walks a map.
func (i *searchIndex) found(ctx *simulator.Context, refs []types.ManagedObjectReference, datacenter *types.ManagedObjectReference) []types.ManagedObjectReference {
	s := i.a.sessionScope(ctx)
	refs = slices.DeleteFunc(refs, func(ref types.ManagedObjectReference) bool {
		return s != nil && !s.allows(ref, privView) || datacenter != nil && !i.a.within(ref, *datacenter)
	})
	slices.SortFunc(refs, func(x, y types.ManagedObjectReference) int {
		if len(x.Value) != len(y.Value) {
			return len(x.Value) - len(y.Value) // vm-9 before vm-10
		}
		return slices.Compare([]byte(x.Value), []byte(y.Value))
	})
	return refs
}

func (i *searchIndex) one(ctx *simulator.Context, ref *types.ManagedObjectReference, datacenter *types.ManagedObjectReference) *types.ManagedObjectReference {
	if ref == nil {
		return nil
	}
	return first(i.found(ctx, []types.ManagedObjectReference{*ref}, datacenter))
}

func first(refs []types.ManagedObjectReference) *types.ManagedObjectReference {
	if len(refs) == 0 {
		return nil
	}
	return &refs[0]
}

// FindAllByUuid finds virtual machines or hosts by UUID.
func (i *searchIndex) FindAllByUuid(ctx *simulator.Context, req *types.FindAllByUuid) soap.HasFault {
	body, ok := i.SearchIndex.FindAllByUuid(ctx, req).(*methods.FindAllByUuidBody)
	if ok && body.Res != nil {
		body.Res.Returnval = i.found(ctx, body.Res.Returnval, req.Datacenter)
	}
	return body
}

// FindByUuid finds one of them.
func (i *searchIndex) FindByUuid(ctx *simulator.Context, req *types.FindByUuid) soap.HasFault {
	all := types.FindAllByUuid(*req)
	body, ok := i.SearchIndex.FindAllByUuid(ctx, &all).(*methods.FindAllByUuidBody)
	reply := &methods.FindByUuidBody{Res: &types.FindByUuidResponse{}}
	if ok && body.Res != nil {
		refs := i.found(ctx, body.Res.Returnval, req.Datacenter)
		if len(refs) > 1 && assume.DuplicateUUID.In(i.a.cfg.Assumptions) == "newest" {
			slices.Reverse(refs)
		}
		reply.Res.Returnval = first(refs)
	}
	return reply
}

// FindAllByDnsName finds virtual machines or hosts by host name.
func (i *searchIndex) FindAllByDnsName(ctx *simulator.Context, req *types.FindAllByDnsName) soap.HasFault {
	body, ok := i.SearchIndex.FindAllByDnsName(ctx, req).(*methods.FindAllByDnsNameBody)
	if ok && body.Res != nil {
		body.Res.Returnval = i.found(ctx, body.Res.Returnval, req.Datacenter)
	}
	return body
}

// FindByDnsName finds the first of them.
func (i *searchIndex) FindByDnsName(ctx *simulator.Context, req *types.FindByDnsName) soap.HasFault {
	all := types.FindAllByDnsName(*req)
	body, ok := i.SearchIndex.FindAllByDnsName(ctx, &all).(*methods.FindAllByDnsNameBody)
	reply := &methods.FindByDnsNameBody{Res: &types.FindByDnsNameResponse{}}
	if ok && body.Res != nil {
		reply.Res.Returnval = first(i.found(ctx, body.Res.Returnval, req.Datacenter))
	}
	return reply
}

// FindAllByIp finds virtual machines or hosts by address.
func (i *searchIndex) FindAllByIp(ctx *simulator.Context, req *types.FindAllByIp) soap.HasFault {
	return &methods.FindAllByIpBody{Res: &types.FindAllByIpResponse{
		Returnval: i.found(ctx, i.byAddress(ctx, req), req.Datacenter),
	}}
}

// FindByIp finds the first of them.
func (i *searchIndex) FindByIp(ctx *simulator.Context, req *types.FindByIp) soap.HasFault {
	all := types.FindAllByIp(*req)
	return &methods.FindByIpBody{Res: &types.FindByIpResponse{
		Returnval: first(i.found(ctx, i.byAddress(ctx, &all), req.Datacenter)),
	}}
}

// byAddress also looks at the addresses of every network card, where the stock search knows the primary one only.
func (i *searchIndex) byAddress(ctx *simulator.Context, req *types.FindAllByIp) []types.ManagedObjectReference {
	var refs []types.ManagedObjectReference
	if body, ok := i.SearchIndex.FindAllByIp(ctx, req).(*methods.FindAllByIpBody); ok && body.Res != nil {
		refs = body.Res.Returnval
	}
	if !req.VmSearch {
		return refs
	}
	for _, e := range i.a.vim.All("VirtualMachine") {
		vm, ok := e.(*simulator.VirtualMachine)
		if !ok || vm.Guest == nil || slices.Contains(refs, vm.Self) {
			continue
		}
		for _, nic := range vm.Guest.Net {
			if slices.Contains(nic.IpAddress, req.Ip) {
				refs = append(refs, vm.Self)
				break
			}
		}
	}
	return refs
}

// FindByDatastorePath finds a virtual machine by its configuration file.
func (i *searchIndex) FindByDatastorePath(ctx *simulator.Context, req *types.FindByDatastorePath) soap.HasFault {
	body, ok := i.SearchIndex.FindByDatastorePath(ctx, req).(*methods.FindByDatastorePathBody)
	if ok && body.Res != nil {
		body.Res.Returnval = i.one(ctx, body.Res.Returnval, &req.Datacenter)
	}
	return body
}

// FindByInventoryPath finds an entity by its path, also through datastore clusters, which the stock one does not enter.
func (i *searchIndex) FindByInventoryPath(ctx *simulator.Context, req *types.FindByInventoryPath) soap.HasFault {
	at := &i.a.root
	for _, name := range strings.FieldsFunc(req.InventoryPath, func(c rune) bool { return c == '/' }) {
		if at = i.child(ctx, *at, name); at == nil {
			break
		}
	}
	return &methods.FindByInventoryPathBody{Res: &types.FindByInventoryPathResponse{Returnval: i.one(ctx, at, nil)}}
}

func (i *searchIndex) child(ctx *simulator.Context, parent types.ManagedObjectReference, name string) *types.ManagedObjectReference {
	if pod, ok := i.a.vim.Get(parent).(*simulator.StoragePod); ok {
		if e := i.a.vim.FindByName(name, pod.ChildEntity); e != nil {
			ref := e.Reference()
			return &ref
		}
		return nil
	}
	body, ok := i.SearchIndex.FindChild(ctx, &types.FindChild{Entity: parent, Name: name}).(*methods.FindChildBody)
	if !ok || body.Res == nil {
		return nil
	}
	return body.Res.Returnval
}

// FindChild finds an entity by name among the children of another.
func (i *searchIndex) FindChild(ctx *simulator.Context, req *types.FindChild) soap.HasFault {
	if i.a.vim.Get(req.Entity) == nil {
		return &methods.FindChildBody{Fault_: notFound(req.Entity)}
	}
	return &methods.FindChildBody{Res: &types.FindChildResponse{Returnval: i.one(ctx, i.child(ctx, req.Entity, req.Name), nil)}}
}
