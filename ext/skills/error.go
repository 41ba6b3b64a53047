package skills

import (
	"errors"
	"fmt"
)

// Errors that callers of the client's half test for with [errors.Is].
var (
	// ErrNotOffered is that the server does not declare the extension, or the part of it that the call needs.
	ErrNotOffered = errors.New("the server has no skills")
	// ErrInvalidEntry is within the error of a server's description of a skill that breaks the rules. Such a skill must
	// not be loaded.
	ErrInvalidEntry = errors.New("the description of the skill is invalid")
	// ErrTooLarge is that a skill has more than [MaxFiles] files or [MaxBytes] bytes.
	ErrTooLarge = errors.New("the skill is too large")
	// ErrDynamic is that a skill cannot be checked, because the server makes its files as they are read.
	ErrDynamic = errors.New("the skill is dynamic: nothing tells what its files have to be")
	// ErrVerification is within the error of a file that is not what the skill's description says, of which the four
	// below are the kinds. Nothing of the file may be used. If the skill was changed since it was described, [Get] gives
	// its new description, which needs the user's consent anew.
	ErrVerification = errors.New("the file is not what the description of the skill says")
	ErrDigest       = fmt.Errorf("%w: its digest is another", ErrVerification)
	ErrSize         = fmt.Errorf("%w: its size is another", ErrVerification)
	ErrFrontmatter  = fmt.Errorf("%w: its frontmatter is another", ErrVerification)
	// ErrUnlisted is that the skill has no such file. It is one of the four, since a skill that has it by now is another.
	ErrUnlisted error = &kind{"it is not among the files of the skill", ErrVerification}
)

var errNoFolders error = &kind{"the server has skills, but does not let their folders be read", ErrNotOffered}

// A kind is a kind of another error with words of its own.
type kind struct {
	text string
	of   error
}

func (k *kind) Error() string { return k.text }
func (k *kind) Unwrap() error { return k.of }
