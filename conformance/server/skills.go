package main

import (
	"embed"
	"io/fs"
	"log"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/mcp"
)

//go:embed skills
var skillFiles embed.FS

// addSkills serves two skills, the first of which has folders.
func addSkills(s *mcp.Server) {
	folder, err := fs.Sub(skillFiles, "skills")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := skills.Serve(s, folder, &skills.Options{Cache: mcp.Cache{TTLMs: 60_000, Scope: mcp.CachePublic}}); err != nil {
		log.Fatal(err)
	}
}
