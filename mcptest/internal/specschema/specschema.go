// Package specschema names the official JSON Schemas of the protocol: the files schema.json of the
// specification's repository, pinned by digest.
package specschema

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// Source is the URL below which the schemas are published, at a commit of the specification's
// repository.
const Source = "https://raw.githubusercontent.com/modelcontextprotocol/modelcontextprotocol/" +
	"b0f60ba5409db7a6582440a7b473cc0398890f15/schema"

// Command is the command that downloads the schemas.
const Command = "go run github.com/patchbay-mcp/patchbay/mcptest/schemas@latest"

// A File is the schema of a revision.
type File struct {
	Revision string // such as "2025-11-25"
	SHA256   string // of the published file, in hexadecimal
}

// Files returns the schemas of all revisions, oldest first.
func Files() []File {
	return []File{
		{"2024-11-05", "61cea2392d4f284092d09bc84b9ac488c0d5618ac2b38a56942fc5b99fd960ce"},
		{"2025-03-26", "e720669548c8100a4282c49e580efd6ddf7f28899ea786fc8db251dbdb356131"},
		{"2025-06-18", "af845e7e5b9d27107d1690f0936022546177a1403e63ffb11470135b296a2e01"},
		{"2025-11-25", "268a5f82ba70fd7e4b6dc4aa1e64f116f74b4d0edcb69dc046829c79dd4e97e7"},
		{"2026-07-28", "ef70b61f99b6d2e5e3b46863822eab08dff6a45bedc7a08914e0e5b133f40203"},
	}
}

// Name returns the name of the file in a directory of schemas.
func (f File) Name() string { return f.Revision + ".json" }

// Verify returns an error if text is not the published file.
func (f File) Verify(text []byte) error {
	sum := sha256.Sum256(text)
	if got := hex.EncodeToString(sum[:]); got != f.SHA256 {
		return fmt.Errorf("schema of revision %s: the SHA-256 is %s, want %s", f.Revision, got, f.SHA256)
	}
	return nil
}

// CacheDir returns the directory of downloaded schemas in the user's cache, which need not exist.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "patchbay", "schemas"), nil
}
