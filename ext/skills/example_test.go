package skills_test

import (
	"context"
	"fmt"
	"log"
	"testing/fstest"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A server serves a directory of skills. A client lists them, loads one and reads another file of
// it.
func Example() {
	ctx := context.Background()
	dir := fstest.MapFS{ // usually an embed.FS or the FS of an os.Root
		"pdf/SKILL.md":            {Data: []byte("---\nname: pdf\ndescription: Fill in forms.\n---\nSee references/FORMS.md.\n")},
		"pdf/references/FORMS.md": {Data: []byte("Sign at the bottom.\n")},
	}
	server := mcp.NewServer("office", "1.0", nil)
	if _, err := skills.Serve(server, dir, nil); err != nil {
		log.Fatal(err)
	}
	client, err := mcp.Connect(ctx, mcp.InMemory(server), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	for skill, err := range skills.List(ctx, client) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(skill.URI, "-", skill.Description)
		// A host asks the user here, and stores the consent with skill.Fingerprint().
		loaded, err := skills.Load(ctx, client, skill, nil)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(loaded.Body())
		form, err := loaded.Read(ctx, "references/FORMS.md")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(string(form))
	}
	// Output:
	// skill://pdf/SKILL.md - Fill in forms.
	// See references/FORMS.md.
	// Sign at the bottom.
}
