package skills_test

import (
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// TestDocSkills runs the code of the package comment: a server that serves a directory, and its
// client.
func TestDocSkills(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"skills/pdf/SKILL.md":            "---\nname: pdf\ndescription: Fill in forms.\n---\nSee references/FORMS.md.\n",
		"skills/pdf/references/FORMS.md": "Sign at the bottom.\n",
	} {
		if err := os.MkdirAll("skills/pdf/references", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, server := t.Context(), mcp.NewServer("office", "1.0.0", nil)
	serve := func() error {
		root, err := os.OpenRoot("skills")
		if err != nil {
			return err
		}
		defer root.Close()
		catalog, err := skills.Serve(server, root.FS(), nil)
		if err == nil && len(catalog.Skills()) != 1 {
			t.Errorf("got skills %v", catalog.Skills())
		}
		return err
	}
	if err := serve(); err != nil {
		t.Fatal(err)
	}
	client, err := mcp.Connect(ctx, mcp.InMemory(server), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	all, err := mcp.Collect(skills.List(ctx, client))
	loaded, err := skills.Load(ctx, client, all[0], nil)
	form, err := loaded.Read(ctx, "references/FORMS.md")
	if err != nil || string(form) != "Sign at the bottom.\n" {
		t.Errorf("got %q, %v", form, err)
	}
}
