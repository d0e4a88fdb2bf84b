package main

import (
	"context"
	"net/url"

	"github.com/vmware/govmomi/vim25/mo"
)

const (
	createSession = "POST /rest/com/vmware/cis/session"
	tagging       = "/rest/com/vmware/cis/tagging/"
	category      = "urn:vmomi:InventoryServiceCategory:category-1:GLOBAL"
	tag           = "urn:vmomi:InventoryServiceTag:tag-1:GLOBAL"
)

// The calls after the first have its session.
var restOperations = []operation{
	{"rest-session-create", createSession, func(ctx context.Context, c *clients) error {
		return c.rest.Login(ctx, url.UserPassword(user, password))
	}},
	{"rest-categories", "GET " + tagging + "category", func(ctx context.Context, c *clients) error {
		_, err := c.tags.ListCategories(ctx)
		return err
	}},
	{"rest-category", "GET " + tagging + "category/id:" + category, func(ctx context.Context, c *clients) error {
		_, err := c.tags.GetCategory(ctx, category)
		return err
	}},
	{"rest-tags-of-category", "POST " + tagging + "tag/id:" + category + "?~action=list-tags-for-category",
		func(ctx context.Context, c *clients) error {
			_, err := c.tags.ListTagsForCategory(ctx, category)
			return err
		}},
	{"rest-tag", "GET " + tagging + "tag/id:" + tag, func(ctx context.Context, c *clients) error {
		_, err := c.tags.GetTag(ctx, tag)
		return err
	}},
	{"rest-attached-tags", "POST " + tagging + "tag-association?~action=list-attached-tags",
		func(ctx context.Context, c *clients) error {
			_, err := c.tags.ListAttachedTags(ctx, machine)
			return err
		}},
	{"rest-attached-tags-on-objects", "POST " + tagging + "tag-association?~action=list-attached-tags-on-objects",
		func(ctx context.Context, c *clients) error {
			_, err := c.tags.ListAttachedTagsOnObjects(ctx, []mo.Reference{machine, host})
			return err
		}},
	{"rest-session-delete", "DELETE /rest/com/vmware/cis/session", func(ctx context.Context, c *clients) error {
		return c.rest.Logout(ctx)
	}},
}
