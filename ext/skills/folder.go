package skills

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Bounds of a folder of skills.
const (
	// maxEntries bounds the files and folders that are looked at: clients take no longer lists of resources.
	maxEntries = 10_000
	// maxDepth bounds folders in one another, and with maxName the length of URIs.
	maxDepth = 16
	// maxName bounds the name of a file or folder: it is that of most disks.
	maxName = 255
	// maxFile bounds the bytes of one file: in base64 it still fits into one message of 16 MiB, which is what clients take.
	maxFile = 11 << 20
)

// A snapshot is a folder of skills as it was at one time, held in memory, so that files and digests always agree.
type snapshot struct {
	skills []*entry // sorted by URI
	byURI  map[string]*entry
	files  map[string]*file
	dirs   map[string][]*mcp.Resource // what is in each folder, sorted by URI
	strays int                        // files that belong to no skill
}

// An entry is a skill with its files.
type entry struct {
	skill   *Skill
	encoded json.RawMessage
	files   []*file
}

// A file is a file of one or, if they are nested, several skills.
type file struct {
	File
	resource *mcp.Resource
	contents *mcp.ResourceContents
}

// A reader makes a snapshot.
type reader struct {
	fsys   fs.FS
	prefix string // of URIs
	base   string // of paths: the name of the one skill that the file system is, or empty
	left   int64  // bytes that may still be read
	paths  []string
	dirs   []string
	seen   map[string]fs.FileInfo // the files as they were when the folder was looked through
	data   map[string][]byte
	snap   *snapshot
}

// read reads all skills of a file system. The error names everything that is wrong.
func read(fsys fs.FS, prefix string, most int64) (*snapshot, error) {
	r := &reader{fsys: fsys, prefix: prefix, left: most, seen: map[string]fs.FileInfo{}, data: map[string][]byte{}, snap: &snapshot{
		byURI: map[string]*entry{}, files: map[string]*file{}, dirs: map[string][]*mcp.Resource{},
	}}
	if err := fs.WalkDir(fsys, ".", r.walk); err != nil {
		return nil, err
	}
	roots := r.roots()
	if err := r.readFiles(roots); err != nil {
		return nil, err
	}
	var faults []error
	for _, root := range roots {
		if err := r.addSkill(root); err != nil {
			faults = append(faults, fmt.Errorf("skill %q: %w", root, err))
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	r.addDirs(roots)
	slices.SortFunc(r.snap.skills, func(a, b *entry) int { return strings.Compare(a.skill.URI, b.skill.URI) })
	return r.snap, nil
}

// walk takes what is in the folder. What a dot hides stays hidden: it is of tools and systems, and may hold secrets.
func (r *reader) walk(name string, d fs.DirEntry, err error) error {
	base := path.Base(name)
	switch {
	case err != nil:
		return err
	case name == ".":
		return nil
	case strings.HasPrefix(base, ".") && d.IsDir():
		return fs.SkipDir
	case strings.HasPrefix(base, "."):
		return nil
	case len(r.paths)+len(r.dirs) == maxEntries:
		return fmt.Errorf("there are more than %d files and folders", maxEntries)
	case len(base) > maxName || strings.Count(name, "/") >= maxDepth:
		return fmt.Errorf("%q: its name is longer than %d bytes, or it is more than %d folders deep", name, maxName, maxDepth)
	case d.IsDir():
		r.dirs = append(r.dirs, name)
		return nil
	case d.Type()&fs.ModeSymlink != 0:
		return fmt.Errorf("%q is a symbolic link: links are not followed, as they may lead anywhere", name)
	case !d.Type().IsRegular():
		return fmt.Errorf("%q is no regular file", name)
	case base != skillFile && strings.EqualFold(base, skillFile):
		return fmt.Errorf("%q: want %s", name, skillFile)
	}
	r.paths = append(r.paths, name)
	r.seen[name], err = d.Info()
	return err
}

// roots returns the folders that are skills. The top comes first: its name is part of the paths of all others.
func (r *reader) roots() (roots []string) {
	for _, name := range r.paths {
		switch root := path.Dir(name); {
		case path.Base(name) != skillFile:
		case root == ".":
			roots = slices.Insert(roots, 0, root)
		default:
			roots = append(roots, root)
		}
	}
	return roots
}

// inFolder reports whether a path is that of a folder or leads into it.
func inFolder(folder, name string) bool {
	return folder == "." || name == folder || strings.HasPrefix(name, folder+"/")
}

// readFiles reads every file of the skills once, and nothing else.
func (r *reader) readFiles(roots []string) error {
	alike := map[string]string{}
	for _, name := range r.paths {
		if !slices.ContainsFunc(roots, func(root string) bool { return inFolder(root, name) }) {
			r.snap.strays++
			continue
		}
		folded := strings.ToLower(name)
		if other, ok := alike[folded]; ok {
			return fmt.Errorf("%q and %q differ in case alone: on some systems they are one file", other, name)
		}
		alike[folded] = name
		data, err := r.readFile(name)
		if err != nil {
			return err
		}
		r.data[name] = data
	}
	return nil
}

func (r *reader) readFile(name string) ([]byte, error) {
	f, err := r.fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || replaced(r.seen[name], info):
		return nil, fmt.Errorf("%q became another file while the skills were read: %w", name, fs.ErrInvalid)
	}
	data, err := io.ReadAll(io.LimitReader(f, min(maxFile, r.left)+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxFile:
		return nil, fmt.Errorf("%q has more than %d bytes", name, maxFile)
	case int64(len(data)) > r.left:
		return nil, errors.New("the skills have more bytes than Options.MaxBytes allows")
	}
	r.left -= int64(len(data))
	return data, nil
}

// replaced reports whether a file of the disk that was opened is another one than was seen before, to which a link may
// lead that has been put there since. Files of other systems are the same as nothing, not even themselves.
func replaced(seen, opened fs.FileInfo) bool {
	return os.SameFile(opened, opened) && !os.SameFile(seen, opened)
}

// uri returns the URI of a file or folder.
func (r *reader) uri(name string) string {
	name = path.Join(r.base, name)
	if name == "." {
		return strings.TrimSuffix(r.prefix, "/")
	}
	return r.prefix + escapePath(name)
}

// addSkill adds the skill of a folder.
func (r *reader) addSkill(root string) error {
	text := r.data[path.Join(root, skillFile)]
	front, err := parseFrontmatter(text)
	if err != nil {
		return err
	}
	if root == "." {
		// The folder's own name is not known to a file system.
		var named struct {
			Name string `json:"name"`
		}
		if err := jsonv2.Unmarshal(front, &named); err != nil {
			return err
		}
		if err := checkName(named.Name); err != nil {
			return err
		}
		r.base = named.Name
	}
	e := &entry{}
	var files []wireFile
	for _, name := range r.paths {
		if inFolder(root, name) {
			f := r.file(name)
			e.files = append(e.files, f)
			files = append(files, wireFile{f.URI, f.Digest, &f.Size})
		}
	}
	resources, err := jsonv2.Marshal(files)
	if err != nil {
		return err
	}
	w := wireSkill{URI: r.uri(path.Join(root, skillFile)), Frontmatter: front, Resources: resources}
	if e.encoded, err = jsonv2.Marshal(w); err != nil {
		return err
	}
	// What a client would refuse is refused here.
	if e.skill, err = parseSkill(e.encoded); err == nil {
		err = errors.Join(e.skill.checkLimits(), e.skill.checkOwn())
	}
	if err != nil {
		return err
	}
	main := r.snap.files[w.URI]
	main.resource.Name, main.resource.Description, main.resource.MIMEType = e.skill.Name, e.skill.Description, "text/markdown"
	r.snap.skills = append(r.snap.skills, e)
	r.snap.byURI[w.URI] = e
	return nil
}

// file returns a file, which may be in several skills.
func (r *reader) file(name string) *file {
	uri := r.uri(name)
	if f, ok := r.snap.files[uri]; ok {
		return f
	}
	data := r.data[name]
	size := int64(len(data))
	f := &file{File: File{Path: name, URI: uri, Digest: digestOf(data), Size: size}, contents: mcp.FileContents(name, data)}
	f.contents.URI = uri
	f.resource = &mcp.Resource{URI: uri, Name: path.Base(name), MIMEType: f.contents.MIMEType, Size: &size}
	r.snap.files[uri] = f
	return f
}

// addDirs adds the folders of skills, and those that lead to skills.
//
// Spec: skills.mdx, Directory Resources.
func (r *reader) addDirs(roots []string) {
	if r.base != "" || !strings.HasSuffix(r.prefix, "://") { // else it has no URI
		r.dirs = append(r.dirs, ".")
	}
	served := func(dir string) bool {
		return slices.ContainsFunc(roots, func(root string) bool { return inFolder(root, dir) || inFolder(dir, root) })
	}
	for _, dir := range r.dirs {
		if served(dir) {
			r.snap.dirs[r.uri(dir)] = []*mcp.Resource{}
		}
	}
	add := func(name string, child *mcp.Resource) {
		parent := r.uri(path.Dir(name))
		if list, ok := r.snap.dirs[parent]; ok && name != "." {
			r.snap.dirs[parent] = append(list, child)
		}
	}
	for _, f := range r.snap.files {
		add(f.Path, f.resource)
	}
	for _, dir := range r.dirs {
		if served(dir) {
			add(dir, &mcp.Resource{URI: r.uri(dir), Name: path.Base(dir), MIMEType: directoryType})
		}
	}
	for _, list := range r.snap.dirs {
		slices.SortFunc(list, func(a, b *mcp.Resource) int { return strings.Compare(a.URI, b.URI) })
	}
}
