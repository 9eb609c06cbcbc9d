package wire

// CapabilityPulse is named by daemons in Hello and in Welcome. Where both name it, the welcoming
// side sends Pulse.
const CapabilityPulse = "pulse"

// CapabilityParts is named by daemons in Welcome that take a Replicate in parts (see
// Replicate.parts). A daemon that does not name it gets the part that fits into one message.
const CapabilityParts = "replicate-parts"
