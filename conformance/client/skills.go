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

// rejectSkills loads every listed skill, as a host does, and reads its files. Every load must fail
// with the given error.
func rejectSkills(want error) func(context.Context, *mcp.Client) error {
	return func(ctx context.Context, c *mcp.Client) error {
		for skill, err := range skills.List(ctx, c) {
			if err != nil {
				return err
			}
			loaded, err := skills.Load(ctx, c, skill, nil)
			if errors.Is(err, want) {
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
			return fmt.Errorf("load %s: no error, want %v", skill.URI, want)
		}
		return nil
	}
}
