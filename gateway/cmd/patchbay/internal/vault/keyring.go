package vault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	system "github.com/zalando/go-keyring"
)

// keyringService is the service name of the key in the keyring.
const keyringService = "patchbay"

var (
	errNoKeyring   = errors.New("not available")
	errKeyringLost = errors.New("the key is missing")
)

// A keyring is the system keyring, with a time limit for calls.
type keyring struct{ timeout time.Duration }

func (k keyring) get(ctx context.Context, id string) (string, error) {
	text, err := k.call(ctx, func() (string, error) { return system.Get(keyringService, id) })
	if errors.Is(err, system.ErrNotFound) {
		err = errKeyringLost
	}
	return text, err
}

// put stores a key and reads it back: some keyrings accept keys and do not store them.
func (k keyring) put(ctx context.Context, id, text string) error {
	_, err := k.call(ctx, func() (string, error) { return "", system.Set(keyringService, id, text) })
	if err != nil {
		return err
	}
	stored, err := k.get(ctx, id)
	if err == nil && stored != text {
		err = errKeyringLost
	}
	return err
}

// remove removes an unused key.
func (k keyring) remove(ctx context.Context, id string) error {
	_, err := k.call(ctx, func() (string, error) { return "", system.Delete(keyringService, id) })
	return err
}

// call calls the keyring. A call that hangs keeps its goroutine: the library cannot cancel it.
func (k keyring) call(ctx context.Context, f func() (string, error)) (string, error) {
	if !hasKeyring() {
		return "", errNoKeyring
	}
	type result struct {
		text string
		err  error
	}
	results := make(chan result, 1)
	go func() { // ends with the call or the program
		text, err := f()
		results <- result{text, err}
	}()
	select {
	case r := <-results:
		return r.text, r.err
	case <-time.After(k.timeout):
		return "", fmt.Errorf("no answer within %v", k.timeout)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// hasKeyring reports whether a keyring may exist: without D-Bus, a call would start an empty bus.
func hasKeyring() bool {
	if runtime.GOOS == "darwin" || runtime.GOOS == "windows" || os.Getenv("DBUS_SESSION_BUS_ADDRESS") != "" {
		return true
	}
	for _, name := range []string{"bus", "dbus-session"} {
		if _, err := os.Stat(filepath.Join("/run/user", strconv.Itoa(os.Getuid()), name)); err == nil {
			return true
		}
	}
	return false
}
