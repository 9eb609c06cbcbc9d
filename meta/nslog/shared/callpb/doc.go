// Package callpb has the generated messages of package calls. It must never depend on their
// meaning, which package calls checks.
package callpb
