package meta

func child() int { return 0 }
