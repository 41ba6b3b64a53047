package mcp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/uritemplate"
)

const (
	// maxFile limits the bytes of a file. In base64 it fits into a message of 16 MiB, the limit of
	// clients.
	maxFile = 11 << 20
	// maxFiles limits the files of a call of AddFS. Clients reject longer lists.
	maxFiles = 10_000
	// maxFileCompletions limits the entries of a directory that are read for a completion.
	maxFileCompletions = 1_000
)

// AddFS registers every file of a file system as a resource, in the order of the paths. The URI of
// a file is prefix followed by its path. AddFS is for files that come with the program, as in an
// [embed.FS]: it lists the files once, with their size and, if known, time of change, and reads
// them when a client asks. Use [AddFSTemplate] for a directory that changes.
//
// A file is sent as text if it is UTF-8 and its type is a text type, or is unknown and the file
// looks like text. Other files are sent as blobs.
//
// AddFS panics if prefix is not a URI that ends with a slash, a file is larger than 11 MiB, there
// are more than 10,000 files, or a URI is in use.
//
// Spec: server/resources, Common URI Schemes.
func AddFS(s *Server, prefix string, fsys fs.FS) []*Registration[Resource] {
	if err := uritemplate.CheckURI(prefix); err != nil || !strings.HasSuffix(prefix, "/") {
		panic(fmt.Sprintf("mcp: AddFS: prefix %q: want a URI that ends with a slash", prefix))
	}
	var files []*Registration[Resource]
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		switch {
		case err != nil:
			return err
		case info.Size() > maxFile:
			return fmt.Errorf("%s has %d bytes, want at most %d", name, info.Size(), maxFile)
		case len(files) == maxFiles:
			return fmt.Errorf("more than %d files; use AddFSTemplate", maxFiles)
		}
		files = append(files, addFile(s, prefix+uritemplate.EscapePath(name), name, fsys, info))
		return nil
	})
	if err != nil {
		panic(fmt.Sprintf("mcp: AddFS %q: %v", prefix, err))
	}
	s.resources.ever.Store(true) // the server declares resources, even if the list is empty
	return files
}

func addFile(s *Server, uri, name string, fsys fs.FS, info fs.FileInfo) *Registration[Resource] {
	size := info.Size()
	r := &Resource{URI: uri, Name: name, MIMEType: fileTypes[strings.ToLower(path.Ext(name))], Size: &size}
	if changed := info.ModTime(); !changed.IsZero() {
		changed = changed.UTC()
		r.Annotations = &Annotations{LastModified: &changed}
	}
	read := func(context.Context, string) (*ReadResourceResult, error) { return readFile(fsys, name) }
	return AddResource(s, r, read)
}

// AddFSTemplate registers the files of a file system as a family of resources and returns its
// [Registration]. The template must contain a single variable, the path of a file, as in
// "file:///project/{+path}". Files are not listed, because they may be many and change. If the
// template lacks a Complete function, paths are completed.
//
// A path with ".." elements, empty elements or a leading slash is not found, so that a path cannot
// leave the file system. The file system decides where symbolic links lead: [os.Root.FS] does not
// follow them out of its directory, [os.DirFS] does. Only regular files are found. A file larger
// than 11 MiB is an error.
//
// AddFSTemplate panics as [AddResourceTemplate] does.
//
// Spec: server/resources, Resource Templates, Security Considerations.
func AddFSTemplate(s *Server, t *ResourceTemplate, fsys fs.FS) *Registration[ResourceTemplate] {
	parsed, err := uritemplate.Parse(t.URITemplate)
	if err != nil {
		panic(fmt.Sprintf("mcp: AddFSTemplate %q: %v", t.URITemplate, err))
	}
	names := parsed.Variables()
	if len(names) != 1 {
		panic(fmt.Sprintf("mcp: AddFSTemplate %q: its variables are %q, want one, the path", t.URITemplate, names))
	}
	copied := *t
	if copied.Complete == nil {
		copied.Complete = map[string]CompleteFunc{names[0]: completePath(fsys)}
	}
	read := func(_ context.Context, vars map[string]string) (*ReadResourceResult, error) {
		return readFile(fsys, vars[names[0]])
	}
	return AddResourceTemplate(s, &copied, read)
}

// readFile reads a regular file. The path may come from a peer.
func readFile(fsys fs.FS, name string) (*ReadResourceResult, error) {
	if !fs.ValidPath(name) {
		return nil, fs.ErrNotExist
	}
	// If Stat fails, the path is wrong: it leads through a file, is too long or leaves the root. A
	// file that is not regular, such as a named pipe, could block in Open.
	if info, err := fs.Stat(fsys, name); err != nil || !info.Mode().IsRegular() {
		return nil, fs.ErrNotExist
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, Errorf(CodeInternalError, "the file is larger than %d bytes", maxFile)
	}
	return &ReadResourceResult{Contents: []*ResourceContents{FileContents(name, data)}}, nil
}

// FileContents returns the contents of a file as [AddFS] serves them: text if its type is text, or
// is unknown and looks like text, else a blob. The extension of the name determines the MIME type.
// The contents alias data.
func FileContents(name string, data []byte) *ResourceContents {
	mimeType, known := fileTypes[strings.ToLower(path.Ext(name))]
	text := utf8.Valid(data)
	if !known {
		text = text && bytes.IndexByte(data, 0) < 0
		mimeType = "application/octet-stream"
		if text {
			mimeType = "text/plain"
		}
	}
	if text && isTextType(mimeType) {
		return &ResourceContents{MIMEType: mimeType, Text: string(data)}
	}
	return &ResourceContents{MIMEType: mimeType, Blob: data}
}

// completePath completes the path of a file, directory by directory.
func completePath(fsys fs.FS) CompleteFunc {
	return func(_ context.Context, typed string, _ map[string]string) ([]string, error) {
		dir, base := path.Split(typed)
		if !fs.ValidPath(dir + "x") {
			return nil, nil
		}
		var found []string
		for _, e := range readDir(fsys, cmp.Or(strings.TrimSuffix(dir, "/"), ".")) {
			if !strings.HasPrefix(e.Name(), base) {
				continue
			}
			name := dir + e.Name()
			if e.IsDir() {
				name += "/"
			}
			found = append(found, name)
		}
		slices.Sort(found)
		return found, nil
	}
}

// readDir returns the first entries of a directory, or nil if it cannot be read.
func readDir(fsys fs.FS, name string) []fs.DirEntry {
	f, err := fsys.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	dir, ok := f.(fs.ReadDirFile)
	if !ok {
		return nil
	}
	entries, err := dir.ReadDir(maxFileCompletions)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	return entries
}

func isTextType(mimeType string) bool {
	switch mimeType {
	case "application/json", "application/javascript", "application/xml", "application/yaml", "application/toml",
		"application/sql", "image/svg+xml":
		return true
	}
	return strings.HasPrefix(mimeType, "text/")
}

// fileTypes contains the MIME types of common file extensions. The table of the operating system
// differs between machines, and contains a video type for .ts.
var fileTypes = map[string]string{
	".txt": "text/plain", ".log": "text/plain", ".md": "text/markdown", ".markdown": "text/markdown",
	".html": "text/html", ".htm": "text/html", ".css": "text/css", ".csv": "text/csv",
	".tsv": "text/tab-separated-values",
	".js":  "text/javascript", ".mjs": "text/javascript", ".ts": "text/x-typescript", ".go": "text/x-go",
	".py": "text/x-python", ".rs": "text/x-rust", ".c": "text/x-c", ".h": "text/x-c", ".java": "text/x-java",
	".rb": "text/x-ruby", ".sh": "text/x-shellscript", ".diff": "text/x-diff", ".patch": "text/x-diff",
	".json": "application/json", ".xml": "application/xml", ".yaml": "application/yaml", ".yml": "application/yaml",
	".toml": "application/toml", ".sql": "application/sql",
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
	".svg": "image/svg+xml", ".ico": "image/vnd.microsoft.icon",
	".mp3": "audio/mpeg", ".wav": "audio/wav", ".ogg": "audio/ogg", ".flac": "audio/flac",
	".mp4": "video/mp4", ".webm": "video/webm",
	".pdf": "application/pdf", ".zip": "application/zip", ".gz": "application/gzip", ".wasm": "application/wasm",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}
