package inventory

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// FieldError says which field of a request for a change is wrong. Nothing was changed then.
type FieldError struct{ Field, Text string }

func (e *FieldError) Error() string { return e.Field + ": " + e.Text }

func wrong(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// Find gives the one object of a type that is called so: by reference value, inventory path or name. Field is where the
// word comes from, for the error. An empty kind allows every type.
func (inv *Inventory) Find(field, word, kind string) (mo.Entity, error) {
	if word == "" {
		return nil, wrong(field, "is missing; give a name, an inventory path or a reference such as vm-42")
	}
	var found []mo.Entity
	for _, ref := range inv.Named(word) {
		entity, ok := inv.ctx.Map.Get(ref).(mo.Entity)
		if ok && (kind == "" || ref.Type == kind) {
			found = append(found, entity)
		}
	}
	what := kind
	if kind == "" {
		what = "object"
	}
	switch len(found) {
	case 0:
		return nil, wrong(field, "there is no %s %q", what, word)
	case 1:
		return found[0], nil
	}
	var paths []string
	for _, entity := range found {
		paths = append(paths, inv.Path(entity.Reference()))
	}
	slices.Sort(paths)
	return nil, wrong(field, "%q is ambiguous; give one of the paths %s", word, strings.Join(paths, ", "))
}

// FindVM finds a virtual machine.
func (inv *Inventory) FindVM(field, word string) (*simulator.VirtualMachine, error) {
	entity, err := inv.Find(field, word, "VirtualMachine")
	if err != nil {
		return nil, err
	}
	return entity.(*simulator.VirtualMachine), nil
}

// FindHost finds a host.
func (inv *Inventory) FindHost(field, word string) (*simulator.HostSystem, error) {
	entity, err := inv.Find(field, word, "HostSystem")
	if err != nil {
		return nil, err
	}
	return entity.(*simulator.HostSystem), nil
}

// FindDatastore finds a datastore.
func (inv *Inventory) FindDatastore(field, word string) (*simulator.Datastore, error) {
	entity, err := inv.Find(field, word, "Datastore")
	if err != nil {
		return nil, err
	}
	return entity.(*simulator.Datastore), nil
}

// update changes properties under the object's lock, so that everybody who waits for changes hears of them.
func (inv *Inventory) update(object mo.Reference, changes ...types.PropertyChange) {
	ctx := inv.newContext()
	ctx.WithLock(object, func() { ctx.Update(object, changes) })
}

func set(name string, value any) types.PropertyChange {
	return types.PropertyChange{Name: name, Val: value}
}

// newVersion says that the configuration of a VM changed.
func newVersion() types.PropertyChange { return set("config.changeVersion", changeVersion(time.Now())) }

// relist takes a reference off one object's list and puts it on another's; field is the list's name.
func (inv *Inventory) relist(object mo.Reference, field string, list func() []types.ManagedObjectReference, ref types.ManagedObjectReference, add bool) {
	ctx := inv.newContext()
	ctx.WithLock(object, func() {
		present := slices.DeleteFunc(slices.Clone(list()), func(other types.ManagedObjectReference) bool { return other == ref })
		if add {
			present = append(present, ref)
		}
		ctx.Update(object, []types.PropertyChange{set(field, present)})
	})
}

// Rename gives an object a new name, wherever vCenter shows it.
func (inv *Inventory) Rename(entity mo.Entity, name string) error {
	if name == "" {
		return wrong("to", "is missing; give the new name")
	}
	if parent := entity.Entity().Parent; parent == nil {
		return wrong("object", "the root folder cannot be renamed")
	} else if folder, ok := inv.ctx.Map.Get(*parent).(*simulator.Folder); ok {
		if other := inv.ctx.Map.FindByName(name, folder.ChildEntity); other != nil && other.Reference() != entity.Reference() {
			return wrong("to", "the folder has an object %q already", name)
		}
	}
	changes := []types.PropertyChange{set("name", name)}
	switch object := entity.(type) {
	case *simulator.VirtualMachine:
		changes = append(changes, set("config.name", name), set("summary.config.name", name), newVersion())
	case *simulator.Datastore:
		changes = append(changes, set("summary.name", name))
		inv.withLock(object, func() { object.Info.GetDatastoreInfo().Name = name })
	}
	inv.update(entity, changes...)
	return nil
}

// Unregister takes a VM out of the inventory. A running one is powered off first, as an administrator would.
func (inv *Inventory) Unregister(vm *simulator.VirtualMachine) error {
	if err := inv.SetPower(vm, "off"); err != nil {
		return err
	}
	if fault := inv.TakeOut(vm); fault != nil {
		return wrong("vm", "vCenter refuses to unregister it: %T", fault)
	}
	return nil
}

// TakeOut unregisters a VM that does not run. For clients that is no task, but vCenter records one.
func (inv *Inventory) TakeOut(vm *simulator.VirtualMachine) types.BaseMethodFault {
	ctx := inv.newContext()
	task := simulator.CreateTask(vm, "unregister", func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
		answer := vm.UnregisterVM(ctx, &types.UnregisterVM{This: vm.Self})
		if fault := answer.Fault(); fault != nil {
			return nil, fault.VimFault().(types.BaseMethodFault)
		}
		return nil, nil
	})
	task.Info.Name = "UnregisterVM"
	task.RunBlocking(ctx)
	if task.Info.Error != nil {
		return task.Info.Error.Fault
	}
	return nil
}

// Delete destroys a VM, which is powered off first, or a datastore that no VM uses, or removes a host with its VMs.
func (inv *Inventory) Delete(entity mo.Entity) error {
	var destroyer interface {
		DestroyTask(*simulator.Context, *types.Destroy_Task) soap.HasFault
	}
	switch object := entity.(type) {
	case *simulator.VirtualMachine:
		if err := inv.SetPower(object, "off"); err != nil {
			return err
		}
		destroyer = object
	case *simulator.Datastore:
		destroyer = object
	case *simulator.HostSystem:
		return inv.removeHost(object)
	default:
		return wrong("object", "only VMs, hosts and datastores can be deleted, not a %s", entity.Reference().Type)
	}
	ctx := inv.newContext()
	var answer soap.HasFault
	ctx.WithLock(entity, func() { answer = destroyer.DestroyTask(ctx, &types.Destroy_Task{This: entity.Reference()}) })
	if err := failed(answer); err != nil {
		return err
	}
	if _, err := inv.finish(answer.(*methods.Destroy_TaskBody).Res.Returnval); err != nil {
		return wrong("object", "vCenter refuses to delete it: %s", err)
	}
	return nil
}
