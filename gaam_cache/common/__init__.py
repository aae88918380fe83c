"""What both packages share: errors, messages, settings, plug-ins, devices, progress."""
