package main

import (
	"context"

	"github.com/vmware/govmomi/pbm"
	pbmmethods "github.com/vmware/govmomi/pbm/methods"
	pbmtypes "github.com/vmware/govmomi/pbm/types"
	vim "github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vslm"
	vslmtypes "github.com/vmware/govmomi/vslm/types"
)

var hubs = []pbmtypes.PbmPlacementHub{
	{HubType: "Datastore", HubId: "datastore-1"},
	{HubType: "StoragePod", HubId: "group-p1"},
}

// Storage policies and first class disks.
var storageOperations = []operation{
	{"PbmRetrieveServiceContent", "PbmRetrieveServiceContent", func(ctx context.Context, c *clients) error {
		_, err := pbm.NewClient(ctx, c.vim)
		return err
	}},
	{"PbmQueryProfile", "PbmQueryProfile", func(ctx context.Context, c *clients) error {
		_, err := c.pbm.QueryProfile(ctx, pbmtypes.PbmProfileResourceType{ResourceType: "STORAGE"}, "REQUIREMENT")
		return err
	}},
	{"PbmRetrieveContent", "PbmRetrieveContent", func(ctx context.Context, c *clients) error {
		_, err := c.pbm.RetrieveContent(ctx, []pbmtypes.PbmProfileId{{UniqueId: "policy-1"}, {UniqueId: "policy-2"}})
		return err
	}},
	{"PbmCheckRequirements", "PbmCheckRequirements", func(ctx context.Context, c *clients) error {
		subject := &pbmtypes.PbmServerObjectRef{ObjectType: "virtualMachine", Key: "vm-1", ServerUuid: "vcenter-1"}
		requirements := []pbmtypes.BasePbmPlacementRequirement{
			&pbmtypes.PbmPlacementCapabilityProfileRequirement{ProfileId: pbmtypes.PbmProfileId{UniqueId: "policy-1"}},
		}
		_, err := c.pbm.CheckRequirements(ctx, hubs, subject, requirements)
		return err
	}},
	{"PbmCheckCompatibility", "PbmCheckCompatibility", func(ctx context.Context, c *clients) error {
		_, err := pbmmethods.PbmCheckCompatibility(ctx, c.pbm, &pbmtypes.PbmCheckCompatibility{
			This:         c.pbm.ServiceContent.PlacementSolver,
			HubsToSearch: hubs,
			Profile:      pbmtypes.PbmProfileId{UniqueId: "policy-1"},
		})
		return err
	}},
	{"VslmRetrieveContent", "RetrieveContent", func(ctx context.Context, c *clients) error {
		_, err := vslm.NewClient(ctx, c.vim)
		return err
	}},
	{"VslmRegisterDisk", "VslmRegisterDisk", func(ctx context.Context, c *clients) error {
		_, err := c.vslm.RegisterDisk(ctx, "https://vcenter.example/folder/disk-1.vmdk?dcPath=dc-1&dsName=shared-1", "disk-1")
		return err
	}},
	{"VslmRetrieveVStorageObject", "VslmRetrieveVStorageObject", func(ctx context.Context, c *clients) error {
		_, err := c.vslm.Retrieve(ctx, vim.ID{Id: "disk-1"})
		return err
	}},
	{"VslmListVStorageObjectForSpec", "VslmListVStorageObjectForSpec", func(ctx context.Context, c *clients) error {
		_, err := c.vslm.ListObjectsForSpec(ctx, []vslmtypes.VslmVsoVStorageObjectQuerySpec{
			{QueryField: "datastoreMoId", QueryOperator: "equals", QueryValue: []string{"datastore-1"}},
			{QueryField: "id", QueryOperator: "greaterThan", QueryValue: []string{"disk-1"}},
		}, 100)
		return err
	}},
}
