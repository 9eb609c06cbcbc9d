package measure

import "fmt"

// Unmeasured is the error of a row that cannot be measured here.
type Unmeasured struct{ reason string }

func (u Unmeasured) Error() string { return u.reason }

// Cannot is the reason why a row cannot be measured here.
func Cannot(format string, args ...any) error { return Unmeasured{fmt.Sprintf(format, args...)} }
