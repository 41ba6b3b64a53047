package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// listSkills lists the skills and does nothing with them.
func listSkills(ctx context.Context, c *mcp.Client) error {
	for _, err := range skills.List(ctx, c) {
		if err != nil {
			return err
		}
	}
	return nil
}

// refuseSkills loads every skill that is listed, as a host does whose user wants it, and reads its files. None can be
// loaded, for the reason given.
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
