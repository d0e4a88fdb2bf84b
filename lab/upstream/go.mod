module vsphere-drivers.example/lab/upstream

go 1.26.0

// Not imported: tests read their manifests, and the manager's chart, from the module cache.
require (
	k8s.io/cloud-provider-vsphere v1.36.0
	sigs.k8s.io/vsphere-csi-driver/v3 v3.7.0
)
