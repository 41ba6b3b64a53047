//go:build !unix

package bolt

import "io/fs"

// On Windows files inherit the access rights of the user's directory.
func checkOwner(string, fs.FileInfo) error { return nil }
