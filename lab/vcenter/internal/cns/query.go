package cns

import (
	"cmp"
	"slices"

	cnstypes "github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/vim25/types"

	"vsphere-drivers.example/lab/vcenter/internal/assume"
)

// volumes in the order in which they were made, so that pages do not shift. The caller holds mu.
func (m *Manager) ordered() []*volume {
	list := make([]*volume, 0, len(m.volumes))
	for _, v := range m.volumes {
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b *volume) int { return cmp.Compare(a.sequence, b.sequence) })
	return list
}

// Sizes of a page of volumes: of a query that asks for none, and the most there are.
const (
	usualPage   = 100
	largestPage = 1000
)

// pageOf is the page that a query asks for. One that is too large is made smaller, without a fault.
func pageOf(cursor *cnstypes.CnsCursor) cnstypes.CnsCursor {
	page := cnstypes.CnsCursor{Limit: usualPage}
	if cursor == nil {
		return page
	}
	page.Offset = cursor.Offset
	if cursor.Limit != 0 {
		page.Limit = min(cursor.Limit, largestPage)
	}
	return page
}

// cut gives the page a cursor asks for, and the cursor for the next: its offset is where that one begins, so the last
// page's offset is the total. A limit of 0 is no limit.
func cut[T any](all []T, cursor cnstypes.CnsCursor) ([]T, cnstypes.CnsCursor, types.BaseMethodFault) {
	if cursor.Offset < 0 || cursor.Limit < 0 {
		return nil, cursor, invalid("cursor")
	}
	total := int64(len(all))
	start := min(cursor.Offset, total)
	end := total
	if cursor.Limit > 0 {
		end = min(start+cursor.Limit, total)
	}
	return all[start:end], cnstypes.CnsCursor{Offset: end, Limit: cursor.Limit, TotalRecords: total}, nil
}

// query finds volumes. A nil selection selects every field.
func (m *Manager) query(filter cnstypes.BaseCnsQueryFilter, selection *cnstypes.CnsQuerySelection, paged bool) (CnsQueryResult, types.BaseMethodFault) {
	base := filter.GetCnsQueryFilter()
	if len(base.VolumeIds) > assume.MaxQueryIDs.In(m.assumed) {
		return CnsQueryResult{}, invalid("filter.volumeIds")
	}
	if fault := m.crowded(filter); fault != nil {
		return CnsQueryResult{}, fault
	}
	fields, fault := selected(selection)
	if fault != nil {
		return CnsQueryResult{}, fault
	}
	found := m.matching(filter)
	cursor := cnstypes.CnsCursor{}
	if paged {
		cursor = pageOf(base.Cursor)
	}
	page, cursor, fault := cut(found, cursor)
	if fault != nil {
		return CnsQueryResult{}, fault
	}
	result := CnsQueryResult{Cursor: cursor}
	for _, v := range page {
		result.Volumes = append(result.Volumes, m.pick(v, fields))
	}
	return result, nil
}

// matching gives all volumes that pass the filter, with all of their fields.
func (m *Manager) matching(filter cnstypes.BaseCnsQueryFilter) []CnsVolume {
	m.dropOrphans()
	base := filter.GetCnsQueryFilter()
	ids := map[string]bool{}
	for _, id := range base.VolumeIds {
		ids[id.Id] = true
	}
	kubernetes, _ := filter.(*cnstypes.CnsKubernetesQueryFilter)
	places := map[types.ManagedObjectReference]place{}
	for _, ref := range m.datastores() {
		places[ref], _ = m.datastore(ref)
	}
	fits := func(e *entry) bool {
		return (len(ids) == 0 || ids[e.VolumeId.Id]) &&
			(len(base.Datastores) == 0 || slices.Contains(base.Datastores, e.at)) &&
			m.matches(&e.CnsVolume, base) && matchesKubernetes(e.Metadata, kubernetes)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	entries := m.visible(places, fits)
	found := make([]CnsVolume, 0, len(entries))
	for _, e := range entries {
		if !m.since("7.0U1") {
			forget67(&e.CnsVolume)
		}
		// Newer than any release we simulate: the WSDL of 9.1 lacks it, and clients made from that cannot read it.
		e.ChangedBlockTracking = ""
		found = append(found, e.CnsVolume)
	}
	return found
}

// visible are the entries of CNS's database that fit a query, in the order in which the volumes were made. The caller holds
// mu.
func (m *Manager) visible(places map[types.ManagedObjectReference]place, fits func(*entry) bool) []entry {
	var found []entry
	for _, v := range m.ordered() {
		real := m.entryOf(v, places[v.datastore()])
		told := &real
		if s := m.shadowOf(v.id); s != nil {
			if told = s.over(&real); fits(&real) || told != nil && fits(told) {
				m.asked(v.id, s)
			}
		}
		if told != nil && fits(told) {
			found = append(found, *told)
		}
	}
	for id := range m.shadows {
		s := m.shadowOf(id)
		if _, exists := m.volumes[id]; exists || s == nil || s.was == nil || !fits(s.was) {
			continue
		}
		m.asked(id, s)
		found = append(found, *s.was.clone())
	}
	slices.SortFunc(found, func(a, b entry) int { return cmp.Compare(a.sequence, b.sequence) })
	return found
}

func (m *Manager) entryOf(v *volume, at place) entry {
	return entry{CnsVolume: m.show(v, at), at: v.datastore(), sequence: v.sequence}
}

func (m *Manager) matches(v *CnsVolume, f *cnstypes.CnsQueryFilter) bool {
	is := func(wanted, value string) bool { return wanted == "" || wanted == value }
	return (len(f.Names) == 0 || slices.Contains(f.Names, v.Name)) &&
		is(f.StoragePolicyId, v.StoragePolicyId) &&
		is(f.ComplianceStatus, v.ComplianceStatus) &&
		is(f.DatastoreAccessibilityStatus, v.DatastoreAccessibilityStatus) &&
		is(f.HealthStatus, v.HealthStatus) &&
		is(string(f.ChangedBlockTracking), string(v.ChangedBlockTracking)) &&
		matchesClusters(v.Metadata, f.ContainerClusterIds) &&
		matchesLabels(v.Metadata, f.Labels, assume.LabelsMatch.In(m.assumed) == "all")
}

// crowded refuses a filter with too many values in one of its lists. That of ids has a limit of its own.
func (m *Manager) crowded(filter cnstypes.BaseCnsQueryFilter) types.BaseMethodFault {
	type list struct {
		name   string
		values int
	}
	f := filter.GetCnsQueryFilter()
	lists := []list{
		{"names", len(f.Names)}, {"containerClusterIds", len(f.ContainerClusterIds)}, {"datastores", len(f.Datastores)}, {"labels", len(f.Labels)},
	}
	if k, ok := filter.(*cnstypes.CnsKubernetesQueryFilter); ok {
		lists = append(lists, list{"namespaces", len(k.Namespaces)}, list{"podNames", len(k.PodNames)}, list{"pvcNames", len(k.PvcNames)}, list{"pvNames", len(k.PvNames)})
	}
	for _, list := range lists {
		if list.values < 2 {
			continue // whatever the limit is
		}
		if most := assume.FilterValues.In(m.assumed); most > 0 && list.values > most {
			return invalid("filter." + list.name)
		}
	}
	return nil
}

func matchesClusters(metadata *cnstypes.CnsVolumeMetadata, wanted []string) bool {
	return len(wanted) == 0 || slices.ContainsFunc(metadata.ContainerClusterArray, func(c cnstypes.CnsContainerCluster) bool {
		return slices.Contains(wanted, c.ClusterId)
	})
}

func matchesLabels(metadata *cnstypes.CnsVolumeMetadata, wanted []types.KeyValue, all bool) bool {
	hits := 0
	for _, label := range wanted {
		if slices.ContainsFunc(metadata.EntityMetadata, func(e cnstypes.BaseCnsEntityMetadata) bool {
			return slices.Contains(e.GetCnsEntityMetadata().Labels, label)
		}) {
			hits++
		}
	}
	return len(wanted) == 0 || (all && hits == len(wanted)) || (!all && hits > 0)
}

// matchesKubernetes: names of one kind are alternatives; a namespace must be that of the named object, or of any.
func matchesKubernetes(metadata *cnstypes.CnsVolumeMetadata, f *cnstypes.CnsKubernetesQueryFilter) bool {
	if f == nil || len(f.Namespaces)+len(f.PodNames)+len(f.PvcNames)+len(f.PvNames) == 0 {
		return true
	}
	named := len(f.PodNames)+len(f.PvcNames)+len(f.PvNames) > 0
	return slices.ContainsFunc(metadata.EntityMetadata, func(base cnstypes.BaseCnsEntityMetadata) bool {
		e, ok := base.(*cnstypes.CnsKubernetesEntityMetadata)
		if !ok {
			return false
		}
		inNamespace := len(f.Namespaces) == 0 || slices.Contains(f.Namespaces, e.Namespace)
		switch cnstypes.CnsKubernetesEntityType(e.EntityType) {
		case cnstypes.CnsKubernetesEntityTypePOD:
			return inNamespace && (!named || slices.Contains(f.PodNames, e.EntityName))
		case cnstypes.CnsKubernetesEntityTypePVC:
			return inNamespace && (!named || slices.Contains(f.PvcNames, e.EntityName))
		default: // a PV has no namespace
			return slices.Contains(f.PvNames, e.EntityName)
		}
	})
}

// show is a volume with all fields but those of a backing that the release lacks. The caller holds mu.
func (m *Manager) show(v *volume, at place) CnsVolume {
	metadata := v.metadata
	metadata.EntityMetadata = slices.Clone(metadata.EntityMetadata)
	shown := CnsVolume{
		VolumeId:                     cnstypes.CnsVolumeId{Id: v.id},
		DatastoreUrl:                 at.url,
		Name:                         v.name,
		VolumeType:                   v.kind,
		StoragePolicyId:              v.policy,
		Metadata:                     &metadata,
		ComplianceStatus:             "compliant",
		DatastoreAccessibilityStatus: "accessible",
		HealthStatus:                 "green",
	}
	if v.breach {
		shown.ComplianceStatus = "nonCompliant"
	}
	if !at.accessible {
		shown.DatastoreAccessibilityStatus = "notAccessible"
		shown.HealthStatus = "red"
	}
	shown.ComplianceStatus = cmp.Or(v.compliance, shown.ComplianceStatus)
	shown.HealthStatus = cmp.Or(v.health, shown.HealthStatus)
	if v.share != nil {
		shown.BackingObjectDetails = m.showShare(v)
	} else {
		shown.BackingObjectDetails = m.showDisk(v.disk)
		if assume.Transactions.In(m.assumed) {
			shown.ChangedBlockTracking = cnstypes.CnsVolumeCBTStatusDisabled
			if v.disk.tracking {
				shown.ChangedBlockTracking = cnstypes.CnsVolumeCBTStatusEnabled
			}
		}
	}
	return shown
}

func (m *Manager) showDisk(d *disk) cnstypes.BaseCnsBackingObjectDetails {
	details := &cnstypes.CnsBlockBackingDetails{
		CnsBackingObjectDetails: cnstypes.CnsBackingObjectDetails{CapacityInMb: d.capacityMB},
		BackingDiskId:           d.id,
	}
	if m.since("7.0U2") {
		details.BackingDiskPath = d.path
		details.BackingDiskObjectId = d.objectID
	}
	if m.since("9.0") {
		details.AggregatedSnapshotCapacityInMb = int64(len(d.snapshots)) * d.capacityMB
	}
	return details
}

// forget67 leaves out what 6.7U3 does not know.
func forget67(v *CnsVolume) {
	v.HealthStatus = ""
	v.Metadata.ContainerClusterArray = nil
	v.Metadata.ContainerCluster.ClusterFlavor = ""
	v.Metadata.ContainerCluster.ClusterDistribution = ""
	for i, base := range v.Metadata.EntityMetadata {
		if e, ok := base.(*cnstypes.CnsKubernetesEntityMetadata); ok {
			old := *e
			old.ClusterID, old.ReferredEntity = "", nil
			v.Metadata.EntityMetadata[i] = &old
		}
	}
}

// selectable are the names a selection may have.
var selectable = []string{
	"VOLUME_METADATA", "DATASTORE_URL", "POLICY_ID", "VOLUME_TYPE", "VOLUME_NAME", "BACKING_OBJECT_DETAILS", "COMPLIANCE_STATUS",
	"DATASTORE_ACCESSIBILITY_STATUS", "HEALTH_STATUS",
}

// selected is the set of wanted fields; nil is all.
func selected(selection *cnstypes.CnsQuerySelection) (map[string]bool, types.BaseMethodFault) {
	if selection == nil {
		return nil, nil
	}
	fields := map[string]bool{}
	for _, name := range selection.Names {
		if !slices.Contains(selectable, name) {
			return nil, invalid("selection.names")
		}
		fields[name] = true
	}
	return fields, nil
}

func (m *Manager) pick(v CnsVolume, fields map[string]bool) CnsVolume {
	if fields == nil {
		return v
	}
	picked := CnsVolume{VolumeId: v.VolumeId}
	text := func(name string, to *string, value string) {
		if fields[name] {
			*to = value
		}
	}
	text("DATASTORE_URL", &picked.DatastoreUrl, v.DatastoreUrl)
	text("POLICY_ID", &picked.StoragePolicyId, v.StoragePolicyId)
	text("VOLUME_TYPE", &picked.VolumeType, v.VolumeType)
	text("VOLUME_NAME", &picked.Name, v.Name)
	text("COMPLIANCE_STATUS", &picked.ComplianceStatus, v.ComplianceStatus)
	text("DATASTORE_ACCESSIBILITY_STATUS", &picked.DatastoreAccessibilityStatus, v.DatastoreAccessibilityStatus)
	text("HEALTH_STATUS", &picked.HealthStatus, v.HealthStatus)
	if fields["VOLUME_METADATA"] {
		picked.Metadata = v.Metadata
	}
	if fields["BACKING_OBJECT_DETAILS"] {
		picked.BackingObjectDetails = v.BackingObjectDetails
	}
	return picked
}

// queryAsync is CnsQueryAsync: the same answer as a task's result.
func (m *Manager) queryAsync(filter cnstypes.BaseCnsQueryFilter, selection *cnstypes.CnsQuerySelection) (types.AnyType, types.BaseMethodFault) {
	result, fault := m.query(filter, selection, true)
	if fault != nil {
		return nil, fault
	}
	return batch(&cnstypes.CnsAsyncQueryResult{QueryResult: result.plain()}), nil
}

// queryInfo is CnsQueryVolumeInfo: the FCDs behind volumes.
func (m *Manager) queryInfo(ids []cnstypes.CnsVolumeId) (types.AnyType, types.BaseMethodFault) {
	if len(ids) == 0 {
		return nil, invalid("volumes")
	}
	result := batch()
	for _, id := range ids {
		d, fault := m.blockDisk(id.Id)
		if _, gone := fault.(*cnstypes.CnsVolumeNotFoundFault); gone {
			fault = &types.NotFound{}
		}
		entry := &cnstypes.CnsQueryVolumeInfoResult{CnsVolumeOperationResult: *outcome(id.Id, fault)}
		if fault == nil {
			entry.VolumeInfo = &cnstypes.CnsBlockVolumeInfo{VStorageObject: m.describe(&d)}
		}
		result.VolumeResults = append(result.VolumeResults, entry)
	}
	return result, nil
}
