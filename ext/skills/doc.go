// Package skills implements Agent Skills over MCP (SEP-2640), the extension
// io.modelcontextprotocol/skills: it serves skills, and reads them from servers.
//
// A skill is a directory with a file SKILL.md, which tells a model how to do something, and any
// other files. A server serves a tree of such directories:
//
//	root, err := os.OpenRoot("skills")
//	if err != nil {
//		return err
//	}
//	defer root.Close()
//	catalog, err := skills.Serve(server, root.FS(), nil)
//
// An [os.Root] does not follow links out of its directory. For skills that are part of the program,
// pass the [fs.Sub] of an embed.FS.
//
// A client lists the skills, which reads no file; loads one, which reads and verifies its SKILL.md;
// and reads other files of the skill when they are needed, which verifies each of them:
//
//	all, err := mcp.Collect(skills.List(ctx, client))
//	loaded, err := skills.Load(ctx, client, all[0], nil)
//	form, err := loaded.Read(ctx, "references/FORMS.md")
//
// # Requirements for hosts
//
// The text of a skill comes from the server and must not be trusted. The digests come from the same
// server: they prove that a file is the file that was listed, not that it is harmless. A host
// therefore must
//
//   - name the server to the model and to the user wherever it shows a skill or its content, with a
//     label of its own, because a server chooses its name freely. A skill is identified by its
//     server and URI together, never by its name.
//   - ask the user before a skill causes code to run on this machine, whether in its files or its
//     text, and ignore allowed-tools and hooks in the frontmatter without the user's consent.
//   - store consent with [Skill.Fingerprint], and ask again when the fingerprint changes. A skill
//     in the directory of another skill needs its own consent; for the outer skill its SKILL.md is
//     an ordinary file.
//   - read files only when they are needed. If it stores files on disk, no other user must be able
//     to write there, and no local skills must be searched for there.
//   - read messages of 24 MiB: a file may contain [MaxBytes], which base64 makes larger by a third.
//     The default of [mcp.CommandTransport.MaxMessage], and of MaxResponse and MaxEvent of the
//     options of [mcphttp.NewTransport], is 16 MiB.
//
// Stage: beta. Version 0.1.0 of the extension is implemented; its format may still change.
//
// Spec: version 0.1.0 of modelcontextprotocol/ext-skills, specification/beta/skills.mdx, which until
// October 2026 was specification/stable/skills.mdx, with the same text.
//
// [mcphttp.NewTransport]: https://pkg.go.dev/github.com/patchbay-mcp/patchbay/mcphttp#NewTransport
package skills

// ID is the identifier of the extension, under which servers declare it (SEP-2640).
const ID = "io.modelcontextprotocol/skills"

// Methods of the extension.
const (
	methodList = "skills/list"
	methodGet  = "skills/get"
	methodDir  = "resources/directory/read"
)

// skillFile is the name of the file that makes a directory a skill.
const skillFile = "SKILL.md"

const directoryType = "inode/directory"

// Limits of a skill. Every host must accept a skill within them.
//
// Spec: skills.mdx, Limits.
const (
	MaxFiles = 512      // files of a skill, including SKILL.md
	MaxBytes = 16 << 20 // size of all files of a skill, in bytes
)
