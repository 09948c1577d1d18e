package faults

const envHolder = "REDLOCK_FAULTS_HOLDER"

func beHolder() {}
