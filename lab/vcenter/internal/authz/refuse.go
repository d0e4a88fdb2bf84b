package authz

import (
	"github.com/vmware/govmomi/cns"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// Registry.Handler can return a fault, but the simulator then leaves the fault's text empty, and clients show
// exactly that text. So a refused call is redirected to this object, which answers with fault and text.
type refusals struct {
	types.ManagedObjectReference
}

var refusalsRef = types.ManagedObjectReference{Type: "SimulatorRefusals", Value: "refusals"}

// Lock keeps the simulator from serialising refusals.
func (*refusals) Lock() {}

// Unlock is the other half.
func (*refusals) Unlock() {}

// refusal is the redirected request.
type refusal struct {
	fault types.BaseMethodFault
	text  string
}

type refusalBody struct{ fault *soap.Fault }

// Fault is the soap.HasFault interface.
func (b *refusalBody) Fault() *soap.Fault { return b.fault }

// Refuse answers a redirected call.
func (*refusals) Refuse(r *refusal) soap.HasFault {
	return &refusalBody{simulator.Fault(r.text, r.fault)}
}

// Login answers a refused login: without a session the simulator lets no other method name through.
func (o *refusals) Login(r *refusal) soap.HasFault { return o.Refuse(r) }

// LoginByToken does the same for tokens.
func (o *refusals) LoginByToken(r *refusal) soap.HasFault { return o.Refuse(r) }

// Refuse makes a call end in a fault with a text. Its results are those of a Registry.Handler, which must return
// them at once: the call is redirected and its request is gone.
func (a *Authz) Refuse(ctx *simulator.Context, m *simulator.Method, fault types.BaseMethodFault, text string) (mo.Reference, types.BaseMethodFault) {
	login := m.Name == "Login" || m.Name == "LoginByToken"
	if ctx.Session == nil && !login {
		return nil, fault
	}
	if !login {
		m.Name = "Refuse"
	}
	target := &refusals{refusalsRef}
	if ctx.Session != nil {
		// Into the session, not the service: searches of the inventory panic on objects that are no managed objects.
		ctx.Session.Registry.Put(target)
	}
	m.This, m.Body = refusalsRef, &refusal{fault, text}
	return target, nil
}

const invalidLoginText = "Cannot complete login due to an incorrect user name or password."

// Handle is Check as a Registry.Handler, with the texts vCenter gives, and with sessions by token named as vCenter does.
func (a *Authz) Handle(ctx *simulator.Context, m *simulator.Method) (mo.Reference, types.BaseMethodFault) {
	fault := a.Check(ctx, m)
	if fault == nil {
		if _, ok := m.Body.(*types.LoginByToken); ok && ctx.Session == nil {
			return &tokenLogins{m.This, a}, nil
		}
		return nil, nil
	}
	text := "Permission to perform this operation was denied."
	if _, ok := fault.(*types.InvalidLogin); ok {
		text = invalidLoginText
	}
	if ctx.Map.Path == cns.Path { // the vSAN endpoint has no sentences
		text = "NoPermission"
	}
	return a.Refuse(ctx, m, fault, text)
}
