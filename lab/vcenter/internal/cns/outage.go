package cns

import "github.com/vmware/govmomi/vim25/types"

// SetPolicyService starts or stops the storage policy service.
func (m *Manager) SetPolicyService(running bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.policiesDown = !running
}

// policyService is the fault of work with a storage policy while the policy service does not run.
func (m *Manager) policyService(policy string) types.BaseMethodFault {
	m.mu.Lock()
	defer m.mu.Unlock()
	if policy == "" || !m.policiesDown {
		return nil
	}
	return failedTo(toCreate, &types.SystemError{Reason: "The storage policy service is not available"})
}
