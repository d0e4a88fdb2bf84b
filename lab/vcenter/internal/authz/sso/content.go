package sso

import (
	"reflect"
	"strings"

	"github.com/vmware/govmomi/ssoadmin"
	"github.com/vmware/govmomi/ssoadmin/types"
	vim "github.com/vmware/govmomi/vim25/types"
)

func ref(kind, value string) vim.ManagedObjectReference {
	return vim.ManagedObjectReference{Type: kind, Value: value}
}

// content names the services; the ids are vCenter's.
var content = types.AdminServiceContent{
	SessionManager:                  ref("SsoSessionManager", "ssoSessionManager"),
	ConfigurationManagementService:  ref("SsoAdminConfigurationManagementService", "configurationManagementService"),
	SmtpManagementService:           ref("SsoAdminSmtpManagementService", "smtpManagementService"),
	PrincipalDiscoveryService:       ref("SsoAdminPrincipalDiscoveryService", "principalDiscoveryService"),
	PrincipalManagementService:      ref("SsoAdminPrincipalManagementService", "principalManagementService"),
	RoleManagementService:           ref("SsoAdminRoleManagementService", "roleManagementService"),
	PasswordPolicyService:           ref("SsoAdminPasswordPolicyService", "passwordPolicyService"),
	LockoutPolicyService:            ref("SsoAdminLockoutPolicyService", "lockoutPolicyService"),
	DomainManagementService:         ref("SsoAdminDomainManagementService", "domainManagementService"),
	IdentitySourceManagementService: ref("SsoAdminIdentitySourceManagementService", "identitySourceManagementService"),
	SystemManagementService:         ref("SsoAdminSystemManagementService", "systemManagementService"),
	DeploymentInformationService:    ref("SsoAdminDeploymentInformationService", "deploymentInformationService"),
	ReplicationService:              ref("SsoAdminReplicationService", "replicationService"),
}

var groupcheckContent = types.GroupcheckServiceContent{
	SessionManager:    ref("SsoSessionManager", "ssoSessionManager"),
	GroupCheckService: ref("SsoGroupcheckGroupCheckService", "groupCheckService"),
}

// serviceOf names the service that has a method; a call on another one is refused.
func serviceOf(method string) vim.ManagedObjectReference {
	switch method {
	case "SsoAdminServiceInstance":
		return ssoadmin.ServiceInstance
	case "SsoGroupcheckServiceInstance":
		return ref("SsoGroupcheckServiceInstance", "ServiceInstance")
	case "Login", "Logout":
		return content.SessionManager
	case "FindAllParentGroups":
		return groupcheckContent.GroupCheckService
	case "GetTrustedCertificates":
		return content.ConfigurationManagementService
	case "GetLocalPasswordPolicy":
		return content.PasswordPolicyService
	case "GetLockoutPolicy":
		return content.LockoutPolicyService
	case "Get", "GetDefaultDomains":
		return content.IdentitySourceManagementService
	case "SetRole", "HasAdministratorRole", "GrantWSTrustRole", "RevokeWSTrustRole":
		return content.RoleManagementService
	}
	if strings.HasPrefix(method, "Find") {
		return content.PrincipalDiscoveryService
	}
	return content.PrincipalManagementService
}

// vimFault shows any armed vim fault under its own type name.
func vimFault(f vim.BaseMethodFault) *fault {
	kind := reflect.TypeOf(f)
	for kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	return refuse(kind.Name(), f, "%s", kind.Name())
}
