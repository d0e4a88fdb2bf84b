"""Works with a vCenter as scripts with VMware's Python client do, so that its requests can be recorded.

    session.py SCENARIO HOST PORT

README.md says how the requests are recorded. pyVmomi knows the version of every field and leaves out what a release does
not have; methods that it would refuse to send are skipped with `since`.
"""

import ssl
import sys

from pyVim import connect, sso, task as tasks
from pyVmomi import SoapStubAdapter, VmomiSupport, pbm, vim, vmodl, vslm
import vsanapiutils

USER, PASSWORD = "administrator@vsphere.local", "Lab-admin-1!"
UNVERIFIED = ssl._create_unverified_context()
Collector = vmodl.query.PropertyCollector


def wait(task):
    """Polls until the task has ended, and returns its result."""
    while (info := task.info).state in ("queued", "running"):
        pass
    if info.state != "success":
        raise info.error
    return info.result


def read(stub, task, *paths):
    """Polls until the task has ended, and reads only what the bindings have types for."""
    collector = vim.ServiceInstance("ServiceInstance", stub).content.propertyCollector
    spec = Collector.FilterSpec(
        propSet=[Collector.PropertySpec(type=vim.Task, pathSet=["info.state", *paths])],
        objectSet=[Collector.ObjectSpec(obj=vim.Task(task._moId, stub))])
    while True:
        values = {value.name: value.val for value in collector.RetrieveContents([spec])[0].propSet}
        if values["info.state"] not in ("queued", "running"):
            return [values.get(path) for path in paths]


def fails(call, *arguments):
    """Calls what vCenter refuses."""
    try:
        call(*arguments)
    except vmodl.MethodFault as fault:
        return fault
    raise SystemError("it succeeded")


def login(host, port, **more):
    return connect.SmartConnect(host=host, port=port, user=USER, pwd=PASSWORD, sslContext=UNVERIFIED, **more)


def find(si, kind, name):
    """Finds an object by its name as most scripts do: a container view, and a property of each member."""
    view = si.content.viewManager.CreateContainerView(si.content.rootFolder, [kind], True)
    found = next(member for member in view.view if member.name == name)
    view.Destroy()
    return found


def traversal():
    """The recursive selection of everything below a folder, with references to specs by name."""
    again = [Collector.SelectionSpec(name=name) for name in ("folder", "vms", "hosts")]
    return [
        Collector.TraversalSpec(name="folder", type=vim.Folder, path="childEntity", skip=False, selectSet=again),
        Collector.TraversalSpec(name="vms", type=vim.Datacenter, path="vmFolder", skip=False, selectSet=again[:1]),
        Collector.TraversalSpec(name="hosts", type=vim.Datacenter, path="hostFolder", skip=False, selectSet=again[:1]),
    ]


def inventory(host, port):
    fails(lambda: connect.SmartConnect(host=host, port=port, user=USER, pwd="wrong", sslContext=UNVERIFIED))
    si = login(host, port)
    content = si.RetrieveContent()
    si.CurrentTime()
    content.sessionManager.currentSession

    # Reading: one property, pages, traversal.
    root, collector = content.rootFolder, content.propertyCollector
    filters = [Collector.FilterSpec(
        propSet=[Collector.PropertySpec(type=vim.VirtualMachine, all=False, pathSet=["name", "config.uuid", "guest.net"]),
                 Collector.PropertySpec(type=vim.ManagedEntity, pathSet=["parent"])],
        objectSet=[Collector.ObjectSpec(obj=root, skip=False, selectSet=traversal())])]
    page = collector.RetrievePropertiesEx(filters, Collector.RetrieveOptions(maxObjects=2))
    collector.ContinueRetrievePropertiesEx(page.token)
    page = collector.RetrievePropertiesEx(filters, Collector.RetrieveOptions(maxObjects=2))
    collector.CancelRetrievePropertiesEx(page.token)
    collector.RetrieveContents(filters)

    # Following: a view, a filter, updates with and without options.
    view = content.viewManager.CreateContainerView(root, [vim.VirtualMachine, vim.HostSystem], True)
    own = collector.CreatePropertyCollector()
    watched = Collector.FilterSpec(
        propSet=[Collector.PropertySpec(type=vim.VirtualMachine, pathSet=["name", "runtime.powerState"])],
        objectSet=[Collector.ObjectSpec(obj=view, skip=True, selectSet=[
            Collector.TraversalSpec(name="members", type=vim.view.ContainerView, path="view", skip=False)])])
    watch = own.CreateFilter(watched, False)
    update = own.WaitForUpdatesEx("", Collector.WaitOptions(maxWaitSeconds=10, maxObjectUpdates=100))
    own.CheckForUpdates(update.version)
    own.WaitForUpdatesEx(update.version, Collector.WaitOptions(maxWaitSeconds=0))
    watch.Destroy()
    own.Destroy()
    view.Destroy()
    node = find(si, vim.VirtualMachine, "node-1")
    listed = content.viewManager.CreateListView([node])
    listed.Modify([node.runtime.host], [node])
    listed.Destroy()

    # Searching.
    datacenter = content.searchIndex.FindByInventoryPath("/dc-1")
    content.searchIndex.FindByUuid(None, node.config.uuid, True, False)
    content.searchIndex.FindAllByUuid(datacenter, node.config.instanceUuid, True, True)
    content.searchIndex.FindByDnsName(datacenter, "node-1", True)
    content.searchIndex.FindByIp(None, "10.99.0.11", True)
    content.searchIndex.FindChild(datacenter.vmFolder, "k8s")

    # Changing a machine: devices are subtypes, extra settings hold any type.
    controller = vim.vm.device.ParaVirtualSCSIController(key=-1, busNumber=1, sharedBus="noSharing")
    disk = vim.vm.device.VirtualDisk(
        key=-2, controllerKey=-1, unitNumber=0, capacityInKB=1024 * 1024,
        backing=vim.vm.device.VirtualDisk.FlatVer2BackingInfo(fileName="[shared-1]", diskMode="persistent", thinProvisioned=True))
    changes = [vim.vm.device.VirtualDeviceSpec(operation="add", device=controller),
               vim.vm.device.VirtualDeviceSpec(operation="add", fileOperation="create", device=disk)]
    wait(node.ReconfigVM_Task(vim.vm.ConfigSpec(
        annotation="spaces < and > & more", numCPUs=4, memoryMB=8192, deviceChange=changes,
        extraConfig=[vim.option.OptionValue(key="guestinfo.metadata", value="text"),
                     vim.option.OptionValue(key="guestinfo.number", value="7")],
        cpuAllocation=vim.ResourceAllocationInfo(shares=vim.SharesInfo(level="normal", shares=0)))))
    task = node.PowerOffVM_Task()
    wait(task)
    tasks.WaitForTask(task, si=si)
    tasks.WaitForTasks([task], si=si)
    wait(node.PowerOnVM_Task(None))
    wait(node.CreateSnapshot_Task("before", "", False, False))
    fails(lambda: wait(node.Destroy_Task()))  # it is on

    # Records, permissions, settings, datastores.
    records = content.taskManager.CreateCollectorForTasks(vim.TaskFilterSpec(
        entity=vim.TaskFilterSpec.ByEntity(entity=node, recursion="self"), state=["success", "error"],
        time=vim.TaskFilterSpec.ByTime(timeType="startedTime", beginTime=si.CurrentTime().replace(year=2020))))
    records.SetCollectorPageSize(10)
    records.ResetCollector()
    records.ReadPreviousTasks(5)
    records.DestroyCollector()
    content.eventManager.QueryEvents(vim.event.EventFilterSpec(
        entity=vim.event.EventFilterSpec.ByEntity(entity=root, recursion="children"), eventTypeId=["VmPoweredOnEvent"]))
    content.authorizationManager.HasPrivilegeOnEntities([node, root], content.sessionManager.currentSession.key, ["System.Read"])
    content.authorizationManager.RetrieveEntityPermissions(root, True)
    content.setting.QueryOptions("VirtualCenter.InstanceName")
    store = find(si, vim.Datastore, "shared-1")
    wait(store.browser.SearchDatastore_Task("[shared-1]", vim.host.DatastoreBrowser.SearchSpec(
        query=[vim.host.DatastoreBrowser.Query(), vim.host.DatastoreBrowser.FolderQuery()], matchPattern=["*"],
        details=vim.host.DatastoreBrowser.FileInfo.Details(fileType=True, fileSize=True, modification=False, fileOwner=False))))
    connect.Disconnect(si)
    fails(lambda: root.name)


def since(stub, method):
    """Tells whether the server's version of CNS has a method."""
    return VmomiSupport.IsChildVersion(stub.version, vim.cns.VolumeManager._GetMethodInfo(method).version)


def metadata(pvc):
    cluster = vim.cns.ContainerCluster(
        clusterType="KUBERNETES", clusterId="c-1", vSphereUser=USER, clusterFlavor="VANILLA", clusterDistribution="Upstream")
    volume = vim.cns.KubernetesEntityMetadata(
        entityName="pv-1", clusterId="c-1", entityType="PERSISTENT_VOLUME", labels=[vim.KeyValue(key="app", value="db")])
    claim = vim.cns.KubernetesEntityMetadata(
        entityName=pvc, clusterId="c-1", entityType="PERSISTENT_VOLUME_CLAIM", namespace="default",
        referredEntity=[vim.cns.KubernetesEntityReference(entityType="PERSISTENT_VOLUME", entityName="pv-1", clusterId="c-1")])
    return vim.cns.VolumeMetadata(containerCluster=cluster, entityMetadata=[volume, claim], containerClusterArray=[cluster])


def volumes(host, port):
    si = login(host, port)
    node = find(si, vim.VirtualMachine, "node-1")
    store, other, vsan = (find(si, vim.Datastore, name) for name in ("shared-1", "pod-1", "vsan-1"))
    cluster = find(si, vim.ClusterComputeResource, "cluster-1")
    version = vsanapiutils.GetLatestVmodlVersion(host, port)
    objects = vsanapiutils.GetVsanVcMos(si._stub, context=UNVERIFIED, version=version)
    cns = objects["cns-volume-manager"]
    # The result of a task of CNS is only written for who asks in the name of vSAN.
    reader = SoapStubAdapter(host=host, port=port, path="/sdk", version=version, sslContext=UNVERIFIED)
    reader.cookie = si._stub.cookie
    gold = [vim.vm.DefinedProfileSpec(profileId="9f6e1c3a-5eed-4000-8000-00000000000b")]

    def result(task):
        return read(reader, task, "info.result")[0].volumeResults[0]

    objects["vsan-cluster-config-system"].VsanClusterGetConfig(cluster)
    spec = vim.cns.VolumeCreateSpec(
        name="pvc-1", volumeType="BLOCK", datastores=[store], metadata=metadata("claim-1"), profile=gold,
        backingObjectDetails=vim.cns.BlockBackingDetails(capacityInMb=1024))
    volume = result(cns.Create([spec])).volumeId
    cns.Query(vim.cns.QueryFilter(volumeIds=[volume], cursor=vim.cns.Cursor(offset=0, limit=10)))
    cns.Query(vim.cns.QueryFilter(names=["pvc-1"], datastores=[store]))
    result(cns.UpdateVolumeMetadata([vim.cns.VolumeMetadataUpdateSpec(volumeId=volume, metadata=metadata("claim-2"))]))
    result(cns.Attach([vim.cns.VolumeAttachDetachSpec(volumeId=volume, vm=node)]))
    result(cns.Detach([vim.cns.VolumeAttachDetachSpec(volumeId=volume, vm=node)]))
    result(cns.Extend([vim.cns.VolumeExtendSpec(volumeId=volume, capacityInMb=2048)]))
    if since(cns._stub, "CreateSnapshots"):
        newer_volumes(cns, volume, store, other, vsan, gold, reader)
    task = cns.Delete([volume], True)
    result(task)  # so that the updates below do not depend on time
    vsanapiutils.WaitForTasks([vsanapiutils.ConvertVsanTaskToVcTask(task, si._stub)], si)
    connect.Disconnect(si)


def newer_volumes(cns, volume, store, other, vsan, gold, reader):
    """What releases from 7.0U3 have."""

    def result(task):
        return read(reader, task, "info.result")[0].volumeResults[0]

    cns.Query(vim.cns.KubernetesQueryFilter(namespaces=["default"], pvcNames=["claim-2"]),
              vim.cns.QuerySelection(names=["VOLUME_NAME", "VOLUME_TYPE"]))
    read(reader, cns.QueryAsync(vim.cns.QueryFilter(volumeIds=[volume]), vim.cns.QuerySelection(names=["BACKING_OBJECT_DETAILS"])), "info.result")
    read(reader, cns.QueryAsync(vim.cns.KubernetesQueryFilter(pvNames=["pv-1"]), None), "info.result")
    # The bindings lack the result of a snapshot, but not the snapshots of the disk behind the volume.
    read(reader, cns.CreateSnapshots([vim.cns.SnapshotCreateSpec(volumeId=volume, description="first")]))
    disks = vim.ServiceInstance("ServiceInstance", store._stub).content.vStorageObjectManager
    snapshot = vim.cns.SnapshotId(id=disks.RetrieveSnapshotInfo(vim.vslm.ID(id=volume.id), store).snapshots[0].id.id)
    clone = result(cns.Create([vim.cns.VolumeCreateSpec(
        name="pvc-3", volumeType="BLOCK", datastores=[store], metadata=metadata("claim-3"),
        backingObjectDetails=vim.cns.BlockBackingDetails(capacityInMb=2048),
        volumeSource=vim.cns.SnapshotVolumeSource(volumeId=volume, snapshotId=snapshot))])).volumeId
    read(reader, cns.DeleteSnapshots([vim.cns.SnapshotDeleteSpec(volumeId=volume, snapshotId=snapshot)]))
    permission = vim.vsan.FileShareNetPermission(ips="10.99.0.0/24", permissions="READ_WRITE", allowRoot=True)
    share = result(cns.Create([vim.cns.VolumeCreateSpec(
        name="share-1", volumeType="FILE", datastores=[vsan], metadata=metadata("claim-4"),
        backingObjectDetails=vim.cns.FileBackingDetails(capacityInMb=1024),
        createSpec=vim.cns.VSANFileCreateSpec(softQuotaInMb=100, permission=[permission]))])).volumeId
    access = vim.cns.NFSAccessControlSpec(netPermission=permission, delete=True)
    read(reader, cns.ConfigureVolumeACLs([vim.cns.VolumeACLConfigureSpec(volumeId=share, accessControlSpecList=[access])]))
    if since(cns._stub, "Relocate"):
        result(cns.Relocate([vim.cns.BlockVolumeRelocateSpec(volumeId=clone, datastore=other)]))
    if since(cns._stub, "ReconfigPolicy"):
        result(cns.ReconfigPolicy([vim.cns.VolumePolicyReconfigSpec(volumeId=volume, profile=gold)]))
    if since(cns._stub, "UnregisterVolume"):
        read(reader, cns.SyncVolume([vim.cns.SyncVolumeSpec(volumeId=clone, datastore=other, syncMode=["SPACE_USAGE"])]))
        read(reader, cns.UnregisterVolume([vim.cns.UnregisterVolumeSpec(volumeId=clone, targetVolumeType="FCD")]))


def policies(host, port):
    si = login(host, port)
    store, node = find(si, vim.Datastore, "shared-1"), find(si, vim.VirtualMachine, "node-1")
    # Every script takes the session out of the quoted cookie, and hands it on for the whole thread.
    VmomiSupport.GetRequestContext()["vcSessionCookie"] = si._stub.cookie.split('"')[1]
    stub = SoapStubAdapter(host=host, port=port, version="pbm.version.version12", path="/pbm/sdk", sslContext=UNVERIFIED)
    content = pbm.ServiceInstance("ServiceInstance", stub).RetrieveContent()
    profiles = content.profileManager
    ids = profiles.PbmQueryProfile(pbm.profile.ResourceType(resourceType="STORAGE"), "REQUIREMENT")
    profiles.PbmRetrieveContent(ids)
    hub = pbm.placement.PlacementHub(hubId=store._moId, hubType="Datastore")
    solver = content.placementSolver
    solver.PbmCheckCompatibility([hub], ids[0])
    solver.PbmCheckRequirements([hub], None, [pbm.placement.CapabilityProfileRequirement(profileId=ids[0])])
    rule = pbm.capability.CapabilityInstance(
        id=pbm.capability.CapabilityMetadata.UniqueId(namespace="VSAN", id="hostFailuresToTolerate"),
        constraint=[pbm.capability.ConstraintInstance(propertyInstance=[
            pbm.capability.PropertyInstance(id="hostFailuresToTolerate", value=1)])])
    made = profiles.PbmCreate(pbm.profile.CapabilityBasedProfileCreateSpec(
        name="made", description="by a script", category="REQUIREMENT",
        resourceType=pbm.profile.ResourceType(resourceType="STORAGE"),
        constraints=pbm.profile.SubProfileCapabilityConstraints(subProfiles=[
            pbm.profile.SubProfileCapabilityConstraints.SubProfile(name="rules", capability=[rule])])))
    profiles.PbmUpdate(made, pbm.profile.CapabilityBasedProfileUpdateSpec(name="renamed"))
    profiles.PbmQueryAssociatedProfiles([pbm.ServerObjectRef(objectType="virtualMachine", key=node._moId)])
    profiles.PbmDelete([made])
    # The request context is still set: vim25 gets the header too.
    si.CurrentTime()
    VmomiSupport.GetRequestContext().clear()
    fails(profiles.PbmRetrieveContent, ids)
    connect.Disconnect(si)


def disks(host, port):
    si = login(host, port)
    store, node = find(si, vim.Datastore, "shared-1"), find(si, vim.VirtualMachine, "node-1")
    session = {"vcSessionCookie": si._stub.cookie.split('"')[1]}
    version = VmomiSupport.newestVersions.GetName("vslm")
    stub = SoapStubAdapter(host=host, port=port, version=version, path="/vslm/sdk", sslContext=UNVERIFIED, requestContext=session)
    content = vslm.ServiceInstance("ServiceInstance", stub).RetrieveContent()
    manager = content.vStorageObjectManager

    def ended(task):
        while (info := task.VslmQueryInfo()).state in ("queued", "running"):
            pass
        if info.state != "success":
            raise info.error
        return task.VslmQueryTaskResult()

    backing = vim.vslm.CreateSpec.DiskFileBackingSpec(datastore=store, provisioningType="thin")
    disk = ended(manager.VslmCreateDisk_Task(vim.vslm.CreateSpec(name="disk-1", capacityInMB=100, backingSpec=backing))).config.id
    manager.VslmRetrieveVStorageObject(disk)
    manager.VslmListVStorageObjectForSpec([vslm.vso.VStorageObjectQuerySpec(
        queryField="name", queryOperator="equals", queryValue=["disk-1"])], 10)
    ended(manager.VslmExtendDisk_Task(disk, 200))
    ended(manager.VslmUpdateVStorageObjectMetadata_Task(disk, [vim.KeyValue(key="k", value="v")], []))
    snapshot = ended(manager.VslmCreateSnapshot_Task(disk, "first"))
    manager.VslmRetrieveSnapshotInfo(disk)
    ended(manager.VslmDeleteSnapshot_Task(disk, snapshot))
    manager.VslmSetVStorageObjectControlFlags(disk, ["keepAfterDeleteVm"])
    ended(manager.VslmDeleteVStorageObject_Task(disk))

    # The same disks through vim25.
    fcd = si.content.vStorageObjectManager
    task = fcd.CreateDisk_Task(vim.vslm.CreateSpec(name="disk-2", capacityInMB=100, backingSpec=backing))
    made = read(si._stub, task, "info.result")[0].config.id
    fcd.ListVStorageObject(store)
    fcd.RetrieveVStorageObject(made, store)
    read(si._stub, node.AttachDisk_Task(made, store, None, None))
    read(si._stub, node.DetachDisk_Task(made))
    read(si._stub, fcd.DeleteVStorageObject_Task(made, store))
    connect.Disconnect(si)


def tokens(host, port):
    sts = sso.SsoAuthenticator(sts_url=f"https://{host}:{port}/sts/STSService/vsphere.local")
    token = sts.get_bearer_saml_assertion(USER, PASSWORD, token_duration=600, delegatable=True, ssl_context=UNVERIFIED)
    si = connect.SmartConnect(host=host, port=port, sslContext=UNVERIFIED, token=token, tokenType="saml")
    si.content.sessionManager.currentSession
    # A session handed to another process, and one copied with a ticket.
    again = connect.SmartConnect(host=host, port=port, sslContext=UNVERIFIED, sessionId=si._stub.GetSessionId())
    again.content.sessionManager.currentSession
    other = connect.SmartStubAdapter(host=host, port=port, sslContext=UNVERIFIED)
    vim.SessionManager("SessionManager", other).CloneSession(si.content.sessionManager.AcquireCloneTicket())
    clone = vim.ServiceInstance("ServiceInstance", other)
    clone.content.sessionManager.Logout()
    connect.Disconnect(si)
    # A stub that logs in by itself: it first looks whether it has a session.
    fresh = connect.SmartStubAdapter(host=host, port=port, sslContext=UNVERIFIED)
    stub = connect.VimSessionOrientedStub(fresh, connect.VimSessionOrientedStub.makeUserLoginMethod(USER, PASSWORD))
    own = vim.ServiceInstance("ServiceInstance", stub)
    own.content.rootFolder.name
    own.content.sessionManager.Logout()


if __name__ == "__main__":
    scenario, address, at = sys.argv[1:]
    {"inventory": inventory, "volumes": volumes, "policies": policies, "disks": disks, "tokens": tokens}[scenario](address, int(at))
