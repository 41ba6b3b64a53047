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

// keyringService is under what the system shows our key to its user.
const keyringService = "patchbay"

var (
	errNoKeyring   = errors.New("there is none")
	errKeyringLost = errors.New("it does not have the key any more")
)

// A keyring is that of the system, asked for a bounded time.
type keyring struct {
	patience time.Duration
}

func (k keyring) get(ctx context.Context, id string) (string, error) {
	text, err := k.ask(ctx, func() (string, error) { return system.Get(keyringService, id) })
	if errors.Is(err, system.ErrNotFound) {
		err = errKeyringLost
	}
	return text, err
}

// put puts a key into the keyring and looks whether it is there: some keyrings take everything and keep nothing.
func (k keyring) put(ctx context.Context, id, text string) error {
	_, err := k.ask(ctx, func() (string, error) { return "", system.Set(keyringService, id, text) })
	if err != nil {
		return err
	}
	kept, err := k.get(ctx, id)
	if err == nil && kept != text {
		err = errKeyringLost
	}
	return err
}

// ask waits for the keyring. A call that never comes back is left behind: the library cannot call one off.
func (k keyring) ask(ctx context.Context, call func() (string, error)) (string, error) {
	if !hasKeyring() {
		return "", errNoKeyring
	}
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer, 1)
	go func() { // ends with the keyring's answer, or with the program
		text, err := call()
		answers <- answer{text, err}
	}()
	timer := time.NewTimer(k.patience)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.text, a.err
	case <-timer.C:
		return "", fmt.Errorf("no answer in %v", k.patience)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// hasKeyring reports whether there can be a keyring. Where it is reached over D-Bus and no bus runs, asking would start a
// bus of our own, at which nobody listens.
func hasKeyring() bool {
	if runtime.GOOS == "darwin" || runtime.GOOS == "windows" {
		return true
	}
	if os.Getenv("DBUS_SESSION_BUS_ADDRESS") != "" {
		return true
	}
	for _, name := range []string{"bus", "dbus-session"} {
		if _, err := os.Stat(filepath.Join("/run/user", strconv.Itoa(os.Getuid()), name)); err == nil {
			return true
		}
	}
	return false
}
