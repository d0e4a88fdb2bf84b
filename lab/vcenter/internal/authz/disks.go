package authz

import (
	"reflect"
	"strings"

	"github.com/vmware/govmomi/cns/types"
	"github.com/vmware/govmomi/simulator"
	vim "github.com/vmware/govmomi/vim25/types"
	vslm "github.com/vmware/govmomi/vslm/types"
)

// diskNeeds covers first-class disks: what changes one needs file management on its datastore, what reads one needs
// to read the datastore.
func (a *Authz) diskNeeds(m *simulator.Method) []requirement {
	switch req := m.Body.(type) {
	case *vim.CreateDisk_Task:
		return backingNeeds(req.Spec.BackingSpec)
	case *vslm.VslmCreateDisk_Task:
		return backingNeeds(req.Spec.BackingSpec)
	case *vim.RegisterDisk:
		return a.byURL(req.Path)
	case *vslm.VslmRegisterDisk:
		return a.byURL(req.Path)
	case *vslm.VslmCloneVStorageObject_Task:
		return append(a.onVolume(req.Id.Id, privFiles), backingNeeds(req.Spec.BackingSpec)...)
	case *vslm.VslmRelocateVStorageObject_Task:
		return append(a.onVolume(req.Id.Id, privFiles), backingNeeds(req.Spec.BackingSpec)...)
	case *vslm.VslmAttachTagToVStorageObject, *vslm.VslmDetachTagFromVStorageObject: // as in vim25
		return a.onVolume(diskID(m.Body), privRead)
	case *vslm.VslmAttachDisk_Task:
		return []requirement{{req.Vm, privAddExisting}}
	}
	name := strings.TrimPrefix(m.Name, "Vslm")
	if !strings.HasSuffix(m.This.Type, "VStorageObjectManager") {
		return nil
	}
	privilege := privFiles
	for _, verb := range []string{"Retrieve", "List", "Query"} {
		if strings.HasPrefix(name, verb) {
			privilege = privRead
		}
	}
	var needs []requirement
	for _, ds := range argument(m.Body, "datastore") {
		needs = append(needs, requirement{ds, privilege})
	}
	if id := diskID(m.Body); id != "" && len(needs) == 0 {
		needs = a.onVolume(id, privilege)
	}
	return needs
}

func backingNeeds(spec vim.BaseVslmCreateSpecBackingSpec) []requirement {
	if spec == nil {
		return nil
	}
	return []requirement{{spec.GetVslmCreateSpecBackingSpec().Datastore, privFiles}}
}

func diskID(body any) string {
	field := reflect.Indirect(reflect.ValueOf(body)).FieldByName("Id")
	if field.IsValid() {
		if id, ok := field.Interface().(vim.ID); ok {
			return id.Id
		}
	}
	return ""
}

func stringField(body any, name string) string {
	value := reflect.Indirect(reflect.ValueOf(body))
	if value.Kind() == reflect.Struct {
		if field := value.FieldByName(name); field.IsValid() && field.Kind() == reflect.String {
			return field.String()
		}
	}
	return ""
}

// onVolume asks for a privilege on a volume's datastore. An unknown volume is left to the call itself to refuse.
func (a *Authz) onVolume(id, privilege string) []requirement {
	if a.cfg.VolumeDatastore == nil {
		return nil
	}
	if ds, ok := a.cfg.VolumeDatastore(id); ok {
		return []requirement{{ds, privilege}}
	}
	return nil
}

// cnsNeeds follows the roles VMware documents for the CSI driver: Cns.Searchable on the root to look for volumes, file
// management on the datastores of volumes, two privileges on the virtual machine to attach, and host storage
// configuration on the clusters of file shares.
func (a *Authz) cnsNeeds(s *scope, m *simulator.Method) []requirement {
	var needs []requirement
	volume := func(id types.CnsVolumeId) { needs = append(needs, a.onVolume(id.Id, privFiles)...) }
	switch req := m.Body.(type) {
	case *types.CnsCreateVolume:
		for i := range req.CreateSpecs {
			needs = append(needs, a.createNeeds(s, &req.CreateSpecs[i])...)
		}
	case *types.CnsAttachVolume:
		for _, spec := range req.AttachSpecs {
			needs = append(needs, requirement{spec.Vm, privAddExisting}, requirement{spec.Vm, privDevices})
		}
	case *types.CnsDetachVolume:
		for _, spec := range req.DetachSpecs {
			needs = append(needs, requirement{spec.Vm, privDevices})
		}
	case *types.CnsDeleteVolume:
		for _, id := range req.VolumeIds {
			volume(id)
		}
	case *types.CnsExtendVolume:
		for _, spec := range req.ExtendSpecs {
			volume(spec.VolumeId)
		}
	case *types.CnsUpdateVolumeMetadata:
		for _, spec := range req.UpdateSpecs {
			volume(spec.VolumeId)
		}
	case *types.CnsCreateSnapshots:
		for _, spec := range req.SnapshotSpecs {
			volume(spec.VolumeId)
		}
	case *types.CnsDeleteSnapshots:
		for _, spec := range req.SnapshotDeleteSpecs {
			volume(spec.VolumeId)
		}
	case *types.CnsReconfigVolumePolicy:
		for _, spec := range req.VolumePolicyReconfigSpecs {
			volume(spec.VolumeId)
		}
	case *types.CnsUpdateVolumeCrypto:
		for _, spec := range req.UpdateSpecs {
			volume(spec.VolumeId)
		}
	case *types.CnsConfigureVolumeACLs:
		for _, spec := range req.ACLConfigSpecs {
			volume(spec.VolumeId)
		}
	case *types.CnsUnregisterVolume:
		for _, spec := range req.UnregisterSpec {
			volume(spec.VolumeId)
		}
	case *types.CnsSyncVolume:
		for _, spec := range req.SyncSpecs {
			volume(spec.VolumeId)
		}
	case *types.CnsRelocateVolume:
		for _, spec := range req.RelocateSpecs {
			if spec != nil {
				volume(spec.GetCnsVolumeRelocateSpec().VolumeId)
				needs = append(needs, requirement{spec.GetCnsVolumeRelocateSpec().Datastore, privFiles})
			}
		}
	default: // queries and CnsSyncDatastore
		needs = append(needs, requirement{a.root, privCnsSearchable})
	}
	return needs
}

// createNeeds wants file management on some datastore. What becomes of a listed one without it is up to CNS: old releases
// refuse the call, newer ones place the volume elsewhere.
func (a *Authz) createNeeds(s *scope, spec *types.CnsVolumeCreateSpec) []requirement {
	var needs []requirement
	if !s.anywhere("Datastore", privFiles) {
		object := a.root
		if len(spec.Datastores) > 0 {
			object = spec.Datastores[0]
		}
		needs = append(needs, requirement{object, privFiles})
	}
	if spec.VolumeType == string(types.CnsVolumeTypeFile) {
		for _, cluster := range spec.ActiveClusters {
			needs = append(needs, requirement{cluster, privHostStorage})
		}
		if len(spec.ActiveClusters) == 0 && !s.anywhere("ClusterComputeResource", privHostStorage) {
			needs = append(needs, requirement{a.root, privHostStorage})
		}
	}
	return needs
}

// anywhere tells whether the user has a privilege on at least one entity of a kind.
func (s *scope) anywhere(kind, privilege string) bool {
	for _, e := range s.a.vim.All(kind) {
		if s.allows(e.Reference(), privilege) {
			return true
		}
	}
	return false
}
