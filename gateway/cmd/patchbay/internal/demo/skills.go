package demo

import (
	"embed"
	"io/fs"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/mcp"
)

//go:embed skills
var skillFiles embed.FS

// addSkills serves each directory of skills/ as a skill.
func addSkills(s *mcp.Server) {
	dir, err := fs.Sub(skillFiles, "skills")
	mustEmbed(err)
	_, err = skills.Serve(s, dir, nil)
	mustEmbed(err)
}
