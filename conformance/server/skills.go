package main

import (
	"embed"
	"io/fs"
	"log"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/mcp"
)

//go:embed skills
var skillFiles embed.FS

// addSkills serves two skills, the first of which has directories.
func addSkills(s *mcp.Server) {
	folder, err := fs.Sub(skillFiles, "skills")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := skills.Serve(s, folder, &skills.Options{Cache: mcp.Cache{TTL: 60_000 * time.Millisecond,
		Public: true}}); err != nil {
		log.Fatal(err)
	}
}
