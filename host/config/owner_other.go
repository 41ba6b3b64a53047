//go:build !unix

package config

import "io/fs"

// On Windows files inherit the access rights of the user's directory.
func checkOwner(string, fs.FileInfo) error { return nil }
