package demo

import (
	"embed"
	"io/fs"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/mcp"
)

//go:embed skills
var skillFiles embed.FS

// addSkills serves the skills that come with the demo.
func addSkills(s *mcp.Server) {
	folder, err := fs.Sub(skillFiles, "skills")
	if err == nil {
		_, err = skills.Serve(s, folder, nil)
	}
	if err != nil {
		panic("demo: " + err.Error()) // they are part of the program
	}
}
