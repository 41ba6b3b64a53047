package host

import "errors"

// errNoPins reports that definitions of the server are not compared with approved ones.
var errNoPins = errors.New("the definitions of the server are not recorded: its settings must contain " +
	"\"trust\"")
