module vsphere-drivers.example/lab/upstream

go 1.26.0

// Not imported: tests read its manifest and its chart from the module cache.
require k8s.io/cloud-provider-vsphere v1.36.0
