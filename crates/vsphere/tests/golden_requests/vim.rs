//! Calls of vCenter's own API.

use vsphere::{
    reference::Ref,
    types::{
        AddAuthorizationRole, AnySelectionSpec, AuthorizationManager, CancelTask, CloneSession,
        ContainerView, ContinueRetrievePropertiesEx, CreateCollectorForTasks, CreateContainerView,
        CreateFilter, CreateListView, CreatePropertyCollector, CurrentTime, Datacenter, Datastore,
        DestroyCollector, DestroyView, FetchUserPrivilegeOnEntities, FindAllByDnsName, FindAllByIp,
        FindAllByUuid, FindByInventoryPath, FindByUuid, Folder, HasPrivilegeOnEntities,
        HasUserPrivilegeOnEntities, HostDateTimeSystem, HostSystem, ListView, Login, LoginByToken,
        Logout, ManagedEntity, ModifyListView, ObjectSpec, OptionValue, Permission, PowerOffVm,
        PowerOnVm, PropertyCollector, PropertyFilterSpec, PropertySpec, QueryDateTime,
        ReadNextTasks, ReconfigVm, RemoveAuthorizationRole, RemoveEntityPermission,
        RetrieveAllPermissions, RetrieveEntityPermissions, RetrieveOptions, RetrievePropertiesEx,
        RetrieveServiceContent, SearchIndex, ServiceInstance, SessionManager, SetEntityPermissions,
        ShutdownGuest, Task, TaskFilterSpec, TaskFilterSpecByTime, TaskFilterSpecTimeOption,
        TaskHistoryCollector, TaskInfoState, TaskManager, TraversalSpec, UpdateAuthorizationRole,
        UpgradeVm, ViewManager, VirtualMachine, VirtualMachineConfigSpec, WaitForUpdatesEx,
        WaitOptions,
    },
};

use crate::request;

const UUID: &str = "4230b1a0-5eed-4000-8000-000000000001";

pub(crate) fn requests() -> Vec<(&'static str, String)> {
    [
        sessions(),
        views(),
        properties(),
        search(),
        machines(),
        past_tasks(),
        roles(),
        permissions(),
        privileges(),
    ]
    .concat()
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn sessions() -> Vec<(&'static str, String)> {
    let service = Ref::<ServiceInstance>::new("ServiceInstance");
    let manager = Ref::<SessionManager>::new("SessionManager");
    let login = Login {
        user_name: "csi@vsphere.local".to_owned(),
        password: "secret & <more>".to_owned(),
        locale: Some("en_US".to_owned()),
    };
    let clone = CloneSession { clone_ticket: "cst-VCT-1".to_owned() };
    let by_token = LoginByToken { locale: Some("en_US".to_owned()) };
    vec![
        ("RetrieveServiceContent", request(&service, &RetrieveServiceContent {})),
        ("CurrentTime", request(&service, &CurrentTime {})),
        ("Login", request(&manager, &login)),
        ("LoginByToken", request(&manager, &by_token)),
        ("CloneSession", request(&manager, &clone)),
        ("Logout", request(&manager, &Logout {})),
    ]
}

fn views() -> Vec<(&'static str, String)> {
    let manager = Ref::<ViewManager>::new("ViewManager");
    let container = CreateContainerView {
        container: Ref::<Folder>::new("group-d1").upcast(),
        type_: texts(&["VirtualMachine", "HostSystem"]),
        recursive: true,
    };
    let list = CreateListView {
        obj: vec![
            Ref::<VirtualMachine>::new("vm-1").upcast(),
            Ref::<HostSystem>::new("host-1").upcast(),
        ],
    };
    let modify = ModifyListView {
        add: vec![Ref::<VirtualMachine>::new("vm-1").upcast()],
        remove: vec![Ref::<VirtualMachine>::new("vm-2").upcast()],
    };
    vec![
        ("CreateContainerView", request(&manager, &container)),
        ("CreateListView", request(&manager, &list)),
        ("ModifyListView", request(&Ref::<ListView>::new("view-2"), &modify)),
        ("DestroyView", request(&Ref::<ContainerView>::new("view-1"), &DestroyView {})),
    ]
}

fn filter() -> PropertyFilterSpec {
    let properties = |kind: &str, paths: &[&str]| PropertySpec {
        type_: kind.to_owned(),
        all: Some(false),
        path_set: texts(paths),
    };
    let through_view = TraversalSpec {
        name: Some("view".to_owned()),
        type_: "ContainerView".to_owned(),
        path: "view".to_owned(),
        skip: Some(false),
        select_set: Vec::new(),
    };
    PropertyFilterSpec {
        prop_set: vec![
            properties("VirtualMachine", &["name", "runtime.powerState"]),
            properties("HostSystem", &["name"]),
        ],
        object_set: vec![ObjectSpec {
            obj: Ref::<ContainerView>::new("view-1").upcast(),
            skip: Some(true),
            select_set: vec![AnySelectionSpec::TraversalSpec(through_view)],
        }],
        report_missing_objects_in_results: Some(true),
    }
}

fn properties() -> Vec<(&'static str, String)> {
    let collector = Ref::<PropertyCollector>::new("propertyCollector");
    let create = CreateFilter { spec: filter(), partial_updates: false };
    let retrieve = RetrievePropertiesEx {
        spec_set: vec![filter()],
        options: RetrieveOptions { max_objects: Some(100) },
    };
    let next = ContinueRetrievePropertiesEx { token: "token-1".to_owned() };
    let options = WaitOptions { max_wait_seconds: Some(60), max_object_updates: Some(100) };
    let wait = WaitForUpdatesEx { version: Some("1".to_owned()), options: Some(options) };
    vec![
        ("CreatePropertyCollector", request(&collector, &CreatePropertyCollector {})),
        ("CreateFilter", request(&collector, &create)),
        ("RetrievePropertiesEx", request(&collector, &retrieve)),
        ("ContinueRetrievePropertiesEx", request(&collector, &next)),
        ("WaitForUpdatesEx", request(&collector, &wait)),
    ]
}

fn search() -> Vec<(&'static str, String)> {
    let index = Ref::<SearchIndex>::new("SearchIndex");
    let datacenter = Some(Ref::<Datacenter>::new("datacenter-1"));
    let by_uuid = FindByUuid {
        datacenter: datacenter.clone(),
        uuid: UUID.to_owned(),
        vm_search: true,
        instance_uuid: Some(false),
    };
    let all_by_uuid = FindAllByUuid {
        datacenter: datacenter.clone(),
        uuid: UUID.to_owned(),
        vm_search: true,
        instance_uuid: Some(true),
    };
    let by_name = FindAllByDnsName {
        datacenter: datacenter.clone(),
        dns_name: "node-1".to_owned(),
        vm_search: true,
    };
    let by_ip = FindAllByIp { datacenter, ip: "10.99.0.11".to_owned(), vm_search: true };
    let by_path = FindByInventoryPath { inventory_path: "/dc-1/vm/k8s/node-1".to_owned() };
    vec![
        ("FindByUuid", request(&index, &by_uuid)),
        ("FindAllByUuid", request(&index, &all_by_uuid)),
        ("FindAllByDnsName", request(&index, &by_name)),
        ("FindAllByIp", request(&index, &by_ip)),
        ("FindByInventoryPath", request(&index, &by_path)),
    ]
}

fn machines() -> Vec<(&'static str, String)> {
    let vm = Ref::<VirtualMachine>::new("vm-1");
    let spec = VirtualMachineConfigSpec {
        change_version: Some("2026-01-01T00:00:00.000000Z".to_owned()),
        extra_config: vec![
            OptionValue { key: "disk.EnableUUID".to_owned(), value: Some("TRUE".into()) }.into(),
        ],
    };
    let upgrade = UpgradeVm { version: Some("vmx-15".to_owned()) };
    let clock = Ref::<HostDateTimeSystem>::new("dateTimeSystem-1");
    vec![
        ("ReconfigVM_Task", request(&vm, &ReconfigVm { spec })),
        ("UpgradeVM_Task", request(&vm, &upgrade)),
        ("PowerOnVM_Task", request(&vm, &PowerOnVm { host: None })),
        ("PowerOffVM_Task", request(&vm, &PowerOffVm {})),
        ("ShutdownGuest", request(&vm, &ShutdownGuest {})),
        ("QueryDateTime", request(&clock, &QueryDateTime {})),
        ("CancelTask", request(&Ref::<Task>::new("task-1"), &CancelTask {})),
    ]
}

fn past_tasks() -> Vec<(&'static str, String)> {
    let collector = Ref::<TaskHistoryCollector>::new("collector-1");
    let time = TaskFilterSpecByTime {
        time_type: TaskFilterSpecTimeOption::CompletedTime,
        begin_time: Some("2026-11-16T04:00:00Z".parse().unwrap()),
        end_time: None,
    };
    let filter = TaskFilterSpec { time: Some(time), state: vec![TaskInfoState::Success] };
    let create = CreateCollectorForTasks { filter };
    let manager = Ref::<TaskManager>::new("TaskManager");
    vec![
        ("CreateCollectorForTasks", request(&manager, &create)),
        ("ReadNextTasks", request(&collector, &ReadNextTasks { max_count: 500 })),
        ("DestroyCollector", request(&collector, &DestroyCollector {})),
    ]
}

fn manager() -> Ref<AuthorizationManager> {
    Ref::new("AuthorizationManager")
}

fn roles() -> Vec<(&'static str, String)> {
    let privileges = texts(&["Datastore.FileManagement", "System.Read"]);
    let name = "CNS-DATASTORE".to_owned();
    let add = AddAuthorizationRole { name: name.clone(), priv_ids: privileges.clone() };
    let update = UpdateAuthorizationRole { role_id: 7, new_name: name, priv_ids: privileges };
    let remove = RemoveAuthorizationRole { role_id: 7, fail_if_used: true };
    vec![
        ("AddAuthorizationRole", request(&manager(), &add)),
        ("UpdateAuthorizationRole", request(&manager(), &update)),
        ("RemoveAuthorizationRole", request(&manager(), &remove)),
    ]
}

fn permissions() -> Vec<(&'static str, String)> {
    let entity = Ref::<Datastore>::new("datastore-1").upcast();
    let retrieve = RetrieveEntityPermissions { entity: entity.clone(), inherited: true };
    let set = SetEntityPermissions {
        entity: entity.clone(),
        permission: vec![
            Permission {
                entity: Some(entity.clone()),
                principal: r"VSPHERE.LOCAL\csi".to_owned(),
                group: false,
                role_id: 7,
                propagate: true,
            },
            Permission {
                entity: None,
                principal: r"VSPHERE.LOCAL\Operators".to_owned(),
                group: true,
                role_id: -2,
                propagate: false,
            },
        ],
    };
    let remove =
        RemoveEntityPermission { entity, user: r"VSPHERE.LOCAL\csi".to_owned(), is_group: false };
    vec![
        ("RetrieveEntityPermissions", request(&manager(), &retrieve)),
        ("RetrieveAllPermissions", request(&manager(), &RetrieveAllPermissions {})),
        ("SetEntityPermissions", request(&manager(), &set)),
        ("RemoveEntityPermission", request(&manager(), &remove)),
    ]
}

fn privileges() -> Vec<(&'static str, String)> {
    let entities: Vec<Ref<ManagedEntity>> = vec![
        Ref::<Datastore>::new("datastore-1").upcast(),
        Ref::<Folder>::new("group-d1").upcast(),
    ];
    let privileges = texts(&["Datastore.FileManagement", "System.Read"]);
    let user = r"VSPHERE.LOCAL\csi".to_owned();
    let of_session = HasPrivilegeOnEntities {
        entity: entities.clone(),
        session_id: "session-1".to_owned(),
        priv_id: privileges.clone(),
    };
    let of_user = HasUserPrivilegeOnEntities {
        entities: entities.iter().map(Ref::upcast).collect(),
        user_name: user.clone(),
        priv_id: privileges,
    };
    let all_of_user = FetchUserPrivilegeOnEntities { entities, user_name: user };
    vec![
        ("HasPrivilegeOnEntities", request(&manager(), &of_session)),
        ("HasUserPrivilegeOnEntities", request(&manager(), &of_user)),
        ("FetchUserPrivilegeOnEntities", request(&manager(), &all_of_user)),
    ]
}
