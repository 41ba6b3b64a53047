package vault

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// previousName is the name to which the encrypted old key of a change is bound.
const previousName = "previous"

// ChangeKey encrypts all values with a new key in a location: [InKeyring], [InFile] or
// [InPassphrase]. Without a location, the new key replaces the old key in the same place. Processes
// that use the vault go on.
//
// The new metadata contains the old key, encrypted with the new key, until all values are encrypted
// with the new key. After a crash, every value can be read, and the next change finishes this change.
func (v *Vault) ChangeKey(ctx context.Context, location, passphrase string) error {
	l, err := lockFile(ctx, filepath.Join(v.dir, metadataLock))
	if err != nil {
		return err
	}
	defer l.Close()
	m, err := v.readMetadata()
	if err == nil && m == nil {
		err = fmt.Errorf("%s: the vault is empty: its first value creates the key", v.dir)
	}
	if err != nil {
		return err
	}
	old, err := v.openExisting(ctx, m)
	if err == nil && old.previous != nil {
		err = v.finishChange(ctx, m, old)
	}
	if err != nil {
		return err
	}
	next := &metadata{Version: changedVersion, ID: hex.EncodeToString(random(16))}
	location = cmp.Or(location, m.Key)
	if location == InFile {
		next.KeyFile = next.ID + ".key" // beside the old file, which a crash may leave in use
	}
	key, err := v.makeKeyIn(ctx, next, location, passphrase)
	if err != nil {
		return fmt.Errorf("new key in the %s: %w; nothing was changed", location, err)
	}
	s, err := sealerOf(next.ID, key)
	if err != nil {
		return err
	}
	next.Previous = s.seal(previousName, m.ID, old.key)
	if err := v.writeMetadata(next, s); err != nil {
		return err
	}
	s.previous = old
	v.unlocking <- struct{}{}
	v.cached = s // this vault stays usable, even if it was opened with the old passphrase
	<-v.unlocking
	if err := v.finishChange(ctx, next, s); err != nil {
		return err
	}
	if m.Key == InKeyring {
		return v.keys.remove(ctx, m.ID)
	}
	return nil
}

// openPrevious decrypts the old key of an unfinished change.
func (s *sealer) openPrevious(m *metadata) error {
	if m.Previous == nil {
		return nil
	}
	id, key, err := s.openOwn(previousName, "", m.Previous)
	if err == nil {
		s.previous, err = sealerOf(id, key)
	}
	return err
}

// finishChange encrypts all values with the key of s, and forgets the old key. An update that began
// with the old key holds the lock of its value; the file of the value may not exist yet.
func (v *Vault) finishChange(ctx context.Context, m *metadata, s *sealer) error {
	files, err := os.ReadDir(v.dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		name, isValue := strings.CutSuffix(f.Name(), ".lock")
		if !isValue || f.Name() == metadataLock {
			continue
		}
		if err := v.reseal(ctx, s, filepath.Join(v.dir, name)); err != nil {
			return fmt.Errorf("%w; all values can be read, and a repeated change of the key goes on", err)
		}
	}
	m.Previous = nil
	if err := v.writeMetadata(m, s); err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(v.dir, f.Name())
		if strings.HasSuffix(path, ".key") && (m.Key != InFile || path != v.keyFile(m)) {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return errors.Join(err, syncDir(v.dir))
}

// reseal encrypts the value at a path, given without the suffix, with the key of s.
func (v *Vault) reseal(ctx context.Context, s *sealer, path string) error {
	l, err := lockFile(ctx, path+".lock")
	if err != nil {
		return err
	}
	defer l.Close()
	text, err := readPrivate(path+".sealed", maxValue+sealOverhead)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	name := filepath.Base(path) + ".sealed"
	if err != nil {
		return err
	}
	if _, _, err := s.openOwn(name, "", text); err == nil {
		return nil
	}
	key, value, err := s.previous.openOwn(name, "", text)
	if err != nil {
		return fmt.Errorf("%s.sealed: %w; log in again, or remove the file", path, err)
	}
	return writeFile(path+".sealed", s.seal(name, key, value))
}
