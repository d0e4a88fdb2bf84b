//! Calls of PBM, VSLM and SSO.

use vsphere::{
    reference::Ref,
    types::{
        ID, PbmCheckCompatibility, PbmCheckRequirements, PbmPlacementCapabilityProfileRequirement,
        PbmPlacementHub, PbmPlacementSolver, PbmProfileId, PbmProfileProfileManager,
        PbmProfileResourceType, PbmQueryProfile, PbmRetrieveContent, PbmRetrieveServiceContent,
        PbmServerObjectRef, PbmServiceInstance, RetrieveContent, SsoAdminPasswordPolicyService,
        SsoAdminPrincipalDiscoveryService, SsoAdminPrincipalManagementService, SsoSessionManager,
        VslmListVStorageObjectForSpec, VslmRegisterDisk, VslmRetrieveVStorageObject,
        VslmServiceInstance, VslmVStorageObjectManager, VslmVsoVStorageObjectQuerySpec, sso,
    },
};

use crate::request;

const URL: &str = "https://vcenter.example/folder/disk-1.vmdk?dcPath=dc-1&dsName=shared-1";

pub(crate) fn requests() -> Vec<(&'static str, String)> {
    [policies(), disks(), users(), sessions_and_policy()].concat()
}

fn policy(id: &str) -> PbmProfileId {
    PbmProfileId { unique_id: id.to_owned() }
}

fn hub(kind: &str, id: &str) -> PbmPlacementHub {
    PbmPlacementHub { hub_type: kind.to_owned(), hub_id: id.to_owned() }
}

fn policies() -> Vec<(&'static str, String)> {
    let service = Ref::<PbmServiceInstance>::new("ServiceInstance");
    let manager = Ref::<PbmProfileProfileManager>::new("ProfileManager");
    let solver = Ref::<PbmPlacementSolver>::new("placementSolver");
    let hubs = vec![hub("Datastore", "datastore-1"), hub("StoragePod", "group-p1")];
    let query = PbmQueryProfile {
        resource_type: PbmProfileResourceType { resource_type: "STORAGE".to_owned() },
        profile_category: Some("REQUIREMENT".to_owned()),
    };
    let retrieve = PbmRetrieveContent { profile_ids: vec![policy("policy-1"), policy("policy-2")] };
    let compatibility =
        PbmCheckCompatibility { hubs_to_search: hubs.clone(), profile: policy("policy-1") };
    let requirement = PbmPlacementCapabilityProfileRequirement { profile_id: policy("policy-1") };
    let requirements = PbmCheckRequirements {
        hubs_to_search: hubs,
        placement_subject_ref: Some(PbmServerObjectRef {
            object_type: "virtualMachine".to_owned(),
            key: "vm-1".to_owned(),
            server_uuid: Some("vcenter-1".to_owned()),
        }),
        placement_subject_requirement: vec![requirement.into()],
    };
    vec![
        ("PbmRetrieveServiceContent", request(&service, &PbmRetrieveServiceContent {})),
        ("PbmQueryProfile", request(&manager, &query)),
        ("PbmRetrieveContent", request(&manager, &retrieve)),
        ("PbmCheckCompatibility", request(&solver, &compatibility)),
        ("PbmCheckRequirements", request(&solver, &requirements)),
    ]
}

fn disks() -> Vec<(&'static str, String)> {
    let service = Ref::<VslmServiceInstance>::new("ServiceInstance");
    let manager = Ref::<VslmVStorageObjectManager>::new("VStorageObjectManager");
    let register = VslmRegisterDisk { path: URL.to_owned(), name: Some("disk-1".to_owned()) };
    let retrieve = VslmRetrieveVStorageObject { id: ID { id: "disk-1".to_owned() } };
    let condition = |field: &str, operator: &str, value: &str| VslmVsoVStorageObjectQuerySpec {
        query_field: field.to_owned(),
        query_operator: operator.to_owned(),
        query_value: vec![value.to_owned()],
    };
    let list = VslmListVStorageObjectForSpec {
        query: vec![
            condition("datastoreMoId", "equals", "datastore-1"),
            condition("id", "greaterThan", "disk-1"),
        ],
        max_result: 100,
    };
    vec![
        ("VslmRetrieveContent", request(&service, &RetrieveContent {})),
        ("VslmRegisterDisk", request(&manager, &register)),
        ("VslmRetrieveVStorageObject", request(&manager, &retrieve)),
        ("VslmListVStorageObjectForSpec", request(&manager, &list)),
    ]
}

fn csi() -> sso::PrincipalId {
    sso::PrincipalId { name: "csi".to_owned(), domain: "vsphere.local".to_owned() }
}

fn users() -> Vec<(&'static str, String)> {
    let management = Ref::<SsoAdminPrincipalManagementService>::new("principalManagementService");
    let discovery = Ref::<SsoAdminPrincipalDiscoveryService>::new("principalDiscoveryService");
    let details = sso::AdminPersonDetails {
        description: Some("user of the drivers".to_owned()),
        email_address: Some("csi@example.com".to_owned()),
        first_name: Some("Container".to_owned()),
        last_name: Some("Storage".to_owned()),
    };
    let (name, password) = ("csi".to_owned(), "secret & <more>".to_owned());
    let create = sso::CreateLocalPersonUser {
        user_name: name.clone(),
        user_details: details.clone(),
        password: password.clone(),
    };
    let update =
        sso::UpdateLocalPersonUserDetails { user_name: name.clone(), user_details: details };
    let reset =
        sso::ResetLocalPersonUserPassword { user_name: name.clone(), new_password: password };
    let delete = sso::DeleteLocalPrincipal { principal_name: name };
    let add = sso::AddUserToLocalGroup { user_id: csi(), group_name: "Operators".to_owned() };
    vec![
        ("SsoCreateLocalPersonUser", request(&management, &create)),
        ("SsoUpdateLocalPersonUserDetails", request(&management, &update)),
        ("SsoResetLocalPersonUserPassword", request(&management, &reset)),
        ("SsoDeleteLocalPrincipal", request(&management, &delete)),
        ("SsoAddUserToLocalGroup", request(&management, &add)),
        ("SsoFindPersonUser", request(&discovery, &sso::FindPersonUser { user_id: csi() })),
    ]
}

fn sessions_and_policy() -> Vec<(&'static str, String)> {
    // The kind is the one that the service tells of its manager.
    let manager = Ref::<SsoSessionManager>::with_kind("SsoAdminSessionManager", "sessionManager");
    let policy = Ref::<SsoAdminPasswordPolicyService>::new("passwordPolicyService");
    vec![
        ("SsoLogin", request(&manager, &sso::Login {})),
        ("SsoLogout", request(&manager, &sso::Logout {})),
        ("SsoGetLocalPasswordPolicy", request(&policy, &sso::GetLocalPasswordPolicy {})),
    ]
}
