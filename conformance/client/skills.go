package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// listSkills only lists the skills.
func listSkills(ctx context.Context, c *mcp.Client) error {
	for _, err := range skills.List(ctx, c) {
		if err != nil {
			return err
		}
	}
	return nil
}

// refuseSkills loads every listed skill, as a host does, and reads its files. Every load must fail
// for the given reason.
func refuseSkills(why error) func(context.Context, *mcp.Client) error {
	return func(ctx context.Context, c *mcp.Client) error {
		for skill, err := range skills.List(ctx, c) {
			if err != nil {
				return err
			}
			loaded, err := skills.Load(ctx, c, skill, nil)
			if errors.Is(err, why) {
				continue
			}
			if err != nil {
				return err
			}
			for _, f := range skill.Files {
				if _, err := loaded.Read(ctx, f.Path); err != nil {
					return err
				}
			}
			return fmt.Errorf("%s was loaded", skill.URI)
		}
		return nil
	}
}
