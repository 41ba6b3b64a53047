package configs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrChanged is returned by Replace if the content of the file differs from the expected content.
var ErrChanged = errors.New("another program has changed the file: run the command again")

// ReadForEdit reads a user's file for Replace. A file that does not exist is empty.
func ReadForEdit(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(path); err == nil {
			return nil, fmt.Errorf("%s: invalid file: is a symbolic link to a file that does not exist", path)
		}
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: invalid file: must be a regular file", path)
	case info.Size() > maxOwnFile:
		return nil, fmt.Errorf("%s: file is too large: want at most %d bytes", path, maxOwnFile)
	}
	return os.ReadFile(path)
}

// Replace replaces the content of a file from ReadForEdit in a single step: other programs and a
// crash see the old or the new content. A symbolic link stays, and so do the permissions. Only its
// user can read a new file. The folder must exist.
func Replace(path string, old, text []byte) error {
	target, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		target, err = path, nil
	}
	if err != nil {
		return err
	}
	mode, err := writableMode(target)
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(target), "."+filepath.Base(target)+".*.new")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp.Name()) }() // fails after the rename
	_, err = temp.Write(text)
	err = errors.Join(err, os.Chmod(temp.Name(), mode), keepOwner(target, temp), temp.Sync())
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	now, err := ReadForEdit(target)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(now, old):
		return fmt.Errorf("%s: %w", path, ErrChanged)
	}
	if err := os.Rename(temp.Name(), target); err != nil {
		return err
	}
	if dir, err := os.Open(filepath.Dir(target)); err == nil {
		_ = dir.Sync() // some systems cannot
		dir.Close()
	}
	return nil
}

// writableMode returns the permissions of a file, and an error if it cannot be written.
func writableMode(path string) (fs.FileMode, error) {
	const private = 0o600 // it may contain secrets
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return private, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Mode().Perm(), nil
}
