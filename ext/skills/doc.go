// Package skills serves Agent Skills over MCP, and reads them from servers that do: the extension
// io.modelcontextprotocol/skills.
//
// A skill is a folder with a file SKILL.md, which tells a model how to do something, and whatever files belong to that.
// A server serves a tree of such folders with one call:
//
//	//go:embed skills
//	var files embed.FS
//
//	folder, _ := fs.Sub(files, "skills")
//	catalog, err := skills.Serve(server, folder, nil)
//
// For a folder of the disk, open it with [os.OpenRoot] and serve its FS: no link leads out of that.
//
// A client lists the skills, which reads no file; loads one, which reads its SKILL.md and checks it; and reads other
// files of the skill when they are needed, each checked as well:
//
//	for skill, err := range skills.List(ctx, client) { … }
//	loaded, err := skills.Load(ctx, client, skill, nil)
//	form, err := loaded.Read(ctx, "references/FORMS.md")
//
// # What a host has to do
//
// What a skill says is text of a stranger. The digests come from the same server as the files: they tell that a file is
// the one that was listed, never that it is harmless. So a host
//
//   - names the server to the model and to the user wherever it shows a skill or what is in it. The label is the host's
//     own: what a server calls itself is for display. A skill is known by server and URI together; its name is no
//     identifier, and never stands for a skill of another server or of the disk.
//   - asks the user before a skill makes anything run on this machine, whether its files say so or its text does, and gives
//     the frontmatter's allowed-tools and hooks no effect without the user's consent.
//   - keeps consent by [Skill.Fingerprint], and asks again when that is another. A skill within another one's folder
//     needs a consent of its own; within the outer skill its SKILL.md is a file like all others.
//   - reads nothing ahead of need, and if it keeps files on disk, then where nobody else can write and where no skills of
//     the disk are looked for.
//
// Spec: the extension's specification/stable/skills.mdx (SEP-2640).
package skills

// ID is the extension's identifier among the capabilities of servers.
const ID = "io.modelcontextprotocol/skills"

// Methods of the extension.
const (
	methodList = "skills/list"
	methodGet  = "skills/get"
	methodDir  = "resources/directory/read"
)

// skillFile is the name of the file that makes a folder a skill.
const skillFile = "SKILL.md"

// directoryType is the MIME type of directories.
const directoryType = "inode/directory"

// Limits of one skill: those that every host accepts.
//
// Spec: skills.mdx, Limits.
const (
	MaxFiles = 512      // files of a skill, SKILL.md among them
	MaxBytes = 16 << 20 // bytes of all files of a skill
)
