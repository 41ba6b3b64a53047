// Package osuser names the operating system user that runs the process.
package osuser

import (
	"os"
	"os/user"
	"strconv"
	"sync"
)

// Name returns the name of the user, or "uid" and the number of a user without a name.
var Name = sync.OnceValue(func() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "uid " + strconv.Itoa(os.Geteuid())
})
