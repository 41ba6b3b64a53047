package skills

import (
	"errors"
	"fmt"
)

// Errors of clients. Test for them with [errors.Is].
var (
	// ErrNotOffered means that the server does not declare the extension, or the part of it that
	// the call needs.
	ErrNotOffered = errors.New("the server does not offer skills")
	// ErrInvalidEntry means that a server's description of a skill violates the specification. The
	// skill must not be loaded.
	ErrInvalidEntry = errors.New("the description of the skill is invalid")
	// ErrTooLarge means that a skill contains more than [MaxFiles] files or [MaxBytes] bytes.
	ErrTooLarge = errors.New("the skill is too large")
	// ErrDynamic means that a skill cannot be verified, because the server generates its files when
	// they are read.
	ErrDynamic = errors.New("the skill is dynamic: its files cannot be verified")
	// ErrVerification means that a file does not match the skill's description. The four errors
	// below wrap it. The file must not be used. If the skill changed since it was described,
	// [Get] returns the new description, for which the user must consent again.
	ErrVerification = errors.New("the file does not match the description of the skill")
	ErrDigest       = fmt.Errorf("%w: different digest", ErrVerification)
	ErrSize         = fmt.Errorf("%w: different size", ErrVerification)
	ErrFrontmatter  = fmt.Errorf("%w: different frontmatter", ErrVerification)
	// ErrUnlisted means that the description of the skill does not list the file.
	ErrUnlisted error = &wrappedError{"the file is not among the files of the skill", ErrVerification}
)

var errNoDirectories error = &wrappedError{"the server does not offer to read directories of skills", ErrNotOffered}

// A wrappedError is an error with a text of its own that wraps another error.
type wrappedError struct {
	text string
	err  error
}

func (e *wrappedError) Error() string { return e.text }
func (e *wrappedError) Unwrap() error { return e.err }
