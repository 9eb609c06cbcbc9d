# Generated from internal/wire/forebay.proto by make generate. Not to be edited.
import base64

from google.protobuf import descriptor_pool, message_factory

_pool = descriptor_pool.DescriptorPool()
_pool.AddSerializedFile(
    base64.b64decode(
        "ChtpbnRlcm5hbC93aXJlL2ZvcmViYXkucHJvdG8SCmZvcmViYXkudjEiBwoFRW1wdHkirwIKBUhl"
        "bGxvEh8KC21pbl92ZXJzaW9uGAEgASgNUgptaW5WZXJzaW9uEh8KC21heF92ZXJzaW9uGAIgASgN"
        "UgptYXhWZXJzaW9uEiIKDGNhcGFiaWxpdGllcxgDIAMoCVIMY2FwYWJpbGl0aWVzEhYKBmNsaWVu"
        "dBgEIAEoCVIGY2xpZW50EhAKA3BpZBgFIAEoDVIDcGlkEhAKA3VpZBgGIAEoDVIDdWlkEhAKA2dp"
        "ZBgHIAEoDVIDZ2lkEhQKBW5vbmNlGAggASgMUgVub25jZRISCgRub2RlGAkgASgJUgRub2RlEhoK"
        "CGluc3RhbmNlGAogASgEUghpbnN0YW5jZRIWCgZzeXN0ZW0YCyABKAhSBnN5c3RlbRIUCgV0b2tl"
        "bhgMIAEoDFIFdG9rZW4iNwoJQ2hhbGxlbmdlEhQKBW5vbmNlGAEgASgMUgVub25jZRIUCgVwcm9v"
        "ZhgCIAEoDFIFcHJvb2YiHQoFUHJvdmUSFAoFcHJvb2YYASABKAxSBXByb29mIhsKBVB1bHNlEhIK"
        "BGhlbGQYASABKA1SBGhlbGQi2wQKB1dlbGNvbWUSGAoHdmVyc2lvbhgBIAEoDVIHdmVyc2lvbhIi"
        "CgxjYXBhYmlsaXRpZXMYAiADKAlSDGNhcGFiaWxpdGllcxISCgRub2RlGAMgASgJUgRub2RlEhoK"
        "CGluc3RhbmNlGAQgASgEUghpbnN0YW5jZRIUCgVlcG9jaBgFIAEoBFIFZXBvY2gSFgoGc2VydmVy"
        "GAYgASgJUgZzZXJ2ZXISHwoLbWFwX3JlZ2lvbnMYByABKAhSCm1hcFJlZ2lvbnMSHwoLbWF4X21l"
        "c3NhZ2UYCCABKA1SCm1heE1lc3NhZ2USGQoIbWF4X2RhdGEYCSABKA1SB21heERhdGESIgoNbWF4"
        "X2luX2ZsaWdodBgKIAEoDVILbWF4SW5GbGlnaHQSKQoQaW5saW5lX3RocmVzaG9sZBgLIAEoDVIP"
        "aW5saW5lVGhyZXNob2xkEhAKA3VpZBgMIAEoDVIDdWlkEhAKA2dpZBgNIAEoDVIDZ2lkEiEKDGRh"
        "dGFfYWRkcmVzcxgOIAEoCVILZGF0YUFkZHJlc3MSGAoHc2Vzc2lvbhgPIAEoBFIHc2Vzc2lvbhIf"
        "CgtkYXRhX3RpY2tldBgQIAEoDFIKZGF0YVRpY2tldBIfCgtvZmlfYWRkcmVzcxgRIAEoCVIKb2Zp"
        "QWRkcmVzcxIhCgxvZmlfcHJvdmlkZXIYEiABKAlSC29maVByb3ZpZGVyEiEKDG9maV9lbmRwb2lu"
        "dBgTIAEoCVILb2ZpRW5kcG9pbnQSHwoLb2ZpX25ldHdvcmsYFCABKAlSCm9maU5ldHdvcmsinQEK"
        "BUVycm9yEhIKBGtpbmQYASABKA1SBGtpbmQSDgoCb3AYAiABKAlSAm9wEhIKBHBhdGgYAyABKAlS"
        "BHBhdGgSEgoEbm9kZRgEIAEoCVIEbm9kZRIWCgZyZWFzb24YBSABKAlSBnJlYXNvbhIWCgZyZW1l"
        "ZHkYBiABKAlSBnJlbWVkeRIYCgdvdXRjb21lGAcgASgNUgdvdXRjb21lIjwKBkNhbmNlbBIYCgdy"
        "ZXF1ZXN0GAEgASgEUgdyZXF1ZXN0EhgKB292ZXJkdWUYAiABKAhSB292ZXJkdWUiVQoNU3RhdHVz"
        "UmVxdWVzdBIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchISCgRub2RlGAIgASgJUgRub2RlEhgKB2Ns"
        "dXN0ZXIYAyABKAhSB2NsdXN0ZXIiNQoLU3RhdHVzUmVwbHkSEgoEanNvbhgBIAEoDFIEanNvbhIS"
        "CgRub2RlGAIgASgMUgRub2RlIiMKCVN1YnNjcmliZRIWCgZidWZmZXIYASABKAlSBmJ1ZmZlciIb"
        "CgVFdmVudBISCgRqc29uGAEgASgMUgRqc29uIiAKCkJ1ZmZlck5hbWUSEgoEbmFtZRgBIAEoCVIE"
        "bmFtZSI9Cg1CdWZmZXJEZXN0cm95EhIKBG5hbWUYASABKAlSBG5hbWUSGAoHZGlzY2FyZBgCIAEo"
        "CFIHZGlzY2FyZCI3CgdCdWZmZXJzEiwKB2J1ZmZlcnMYASADKAsyEi5mb3JlYmF5LnYxLkJ1ZmZl"
        "clIHYnVmZmVycyKuBAoGQnVmZmVyEhIKBG5hbWUYASABKAlSBG5hbWUSEAoDdWlkGAIgASgNUgN1"
        "aWQSEAoDZ2lkGAMgASgNUgNnaWQSEgoEbW9kZRgEIAEoDVIEbW9kZRIaCghjYXBhY2l0eRgFIAEo"
        "A1IIY2FwYWNpdHkSGAoHYmFja2luZxgGIAEoCVIHYmFja2luZxIeCgpkdXJhYmlsaXR5GAcgASgJ"
        "UgpkdXJhYmlsaXR5EhQKBWNvZGVjGAggASgJUgVjb2RlYxISCgRrZWVwGAkgAygJUgRrZWVwEh8K"
        "C2ZsdXNoX2xpbWl0GAogASgDUgpmbHVzaExpbWl0EiAKDGRpcnR5X2FnZV9ucxgLIAEoA1IKZGly"
        "dHlBZ2VOcxIXCgdub193YWl0GAwgASgIUgZub1dhaXQSGAoHcmVjZWlwdBgNIAEoCFIHcmVjZWlw"
        "dBIQCgNqb2IYDiABKAlSA2pvYhIdCgpjcmVhdGVkX25zGA8gASgDUgljcmVhdGVkTnMSFAoFc3Rh"
        "dGUYECABKAlSBXN0YXRlEiEKDGtlZXBfZGVmYXVsdBgRIAEoCFILa2VlcERlZmF1bHQSGgoIcmVw"
        "bGljYXMYEiABKA1SCHJlcGxpY2FzEioKBXRpZXJzGBMgAygLMhQuZm9yZWJheS52MS5UaWVyUnVs"
        "ZVIFdGllcnMSGgoIZXhpc3RpbmcYFCABKAlSCGV4aXN0aW5nEhQKBWZvdW5kGBUgASgJUgVmb3Vu"
        "ZCI4CghUaWVyUnVsZRIYCgdwYXR0ZXJuGAEgASgJUgdwYXR0ZXJuEhIKBHRpZXIYAiABKA1SBHRp"
        "ZXIilwMKBUVudHJ5EhIKBG5hbWUYASABKAlSBG5hbWUSEgoEdHlwZRgCIAEoDVIEdHlwZRISCgRm"
        "aWxlGAMgASgEUgRmaWxlEh4KCmdlbmVyYXRpb24YBCABKARSCmdlbmVyYXRpb24SEgoEc2l6ZRgF"
        "IAEoA1IEc2l6ZRIaCghjaGVja3N1bRgGIAEoBFIIY2hlY2tzdW0SEgoEb3BlbhgHIAEoCFIEb3Bl"
        "bhIYCgdob2xkZXJzGAggAygJUgdob2xkZXJzEhIKBG1vZGUYCSABKA1SBG1vZGUSEAoDdWlkGAog"
        "ASgNUgN1aWQSEAoDZ2lkGAsgASgNUgNnaWQSGQoIbXRpbWVfbnMYDCABKANSB210aW1lTnMSFAoF"
        "c3RhdGUYDSABKA1SBXN0YXRlEhYKBnJlYXNvbhgOIAEoCVIGcmVhc29uEhAKA2RpchgPIAEoBFID"
        "ZGlyEi0KB2ZsdXNoZWQYECABKAsyEy5mb3JlYmF5LnYxLkZsdXNoZWRSB2ZsdXNoZWQSEgoEcGF0"
        "aBgRIAEoCVIEcGF0aCI2CgdFbnRyaWVzEisKB2VudHJpZXMYASADKAsyES5mb3JlYmF5LnYxLkVu"
        "dHJ5UgdlbnRyaWVzIqgBCgdGbHVzaGVkEh4KCmdlbmVyYXRpb24YASABKARSCmdlbmVyYXRpb24S"
        "EgoEZXRhZxgCIAEoCVIEZXRhZxISCgRzaXplGAMgASgDUgRzaXplEhoKCGNoZWNrc3VtGAQgASgE"
        "UghjaGVja3N1bRIUCgVjb2RlYxgFIAEoCVIFY29kZWMSEwoFYXRfbnMYBiABKANSBGF0TnMSDgoC"
        "YnkYByABKAlSAmJ5IjkKC1BhdGhSZXF1ZXN0EhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEhIKBHBh"
        "dGgYAiABKAlSBHBhdGgiZQoLTGlzdFJlcXVlc3QSFgoGYnVmZmVyGAEgASgJUgZidWZmZXISEgoE"
        "cGF0aBgCIAEoCVIEcGF0aBIUCgVhZnRlchgDIAEoCVIFYWZ0ZXISFAoFbGltaXQYBCABKA1SBWxp"
        "bWl0IkwKCUxpc3RSZXBseRIrCgdlbnRyaWVzGAEgAygLMhEuZm9yZWJheS52MS5FbnRyeVIHZW50"
        "cmllcxISCgRtb3JlGAIgASgIUgRtb3JlImEKBU1rZGlyEhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVy"
        "EhIKBHBhdGgYAiABKAlSBHBhdGgSEgoEbW9kZRgDIAEoDVIEbW9kZRIYCgdwYXJlbnRzGAQgASgI"
        "UgdwYXJlbnRzImMKBlJlbmFtZRIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchISCgRmcm9tGAIgASgJ"
        "UgRmcm9tEg4KAnRvGAMgASgJUgJ0bxIdCgpub19yZXBsYWNlGAQgASgIUglub1JlcGxhY2UiZgoG"
        "UmVtb3ZlEhYKBmJ1ZmZlchgBIAEoCVIGYnVmZmVyEhIKBHBhdGgYAiABKAlSBHBhdGgSHAoJcmVj"
        "dXJzaXZlGAMgASgIUglyZWN1cnNpdmUSEgoEcGFnZRgEIAEoA1IEcGFnZSJVCgdSZW1vdmVkEhQK"
        "BWZpbGVzGAEgASgDUgVmaWxlcxIgCgtkaXJlY3RvcmllcxgCIAEoA1ILZGlyZWN0b3JpZXMSEgoE"
        "bW9yZRgDIAEoCFIEbW9yZSLCAQoHU2V0QXR0chIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchISCgRw"
        "YXRoGAIgASgJUgRwYXRoEhcKBG1vZGUYAyABKA1IAFIEbW9kZYgBARIVCgN1aWQYBCABKA1IAVID"
        "dWlkiAEBEhUKA2dpZBgFIAEoDUgCUgNnaWSIAQESHgoIbXRpbWVfbnMYBiABKANIA1IHbXRpbWVO"
        "c4gBAUIHCgVfbW9kZUIGCgRfdWlkQgYKBF9naWRCCwoJX210aW1lX25zIsIDCgRPcGVuEhYKBmhh"
        "bmRsZRgBIAEoBFIGaGFuZGxlEhYKBmJ1ZmZlchgCIAEoCVIGYnVmZmVyEhIKBHBhdGgYAyABKAlS"
        "BHBhdGgSFAoFd3JpdGUYBCABKAhSBXdyaXRlEhYKBmNyZWF0ZRgFIAEoCFIGY3JlYXRlEhwKCWV4"
        "Y2x1c2l2ZRgGIAEoCFIJZXhjbHVzaXZlEhoKCHRydW5jYXRlGAcgASgIUgh0cnVuY2F0ZRISCgRt"
        "b2RlGAggASgNUgRtb2RlEh8KC3Jlc3VtZV9maWxlGAkgASgEUgpyZXN1bWVGaWxlEisKEXJlc3Vt"
        "ZV9nZW5lcmF0aW9uGAogASgEUhByZXN1bWVHZW5lcmF0aW9uEikKEHJlc3VtZV9jb21taXR0ZWQY"
        "CyABKAhSD3Jlc3VtZUNvbW1pdHRlZBISCgR3YW50GAwgASgNUgR3YW50EhIKBGZpbGUYDSABKARS"
        "BGZpbGUSHgoKZ2VuZXJhdGlvbhgOIAEoBFIKZ2VuZXJhdGlvbhIjCg1yZXN1bWVfd3JpdGVyGA8g"
        "ASgEUgxyZXN1bWVXcml0ZXISFAoFZmVuY2UYFCABKAhSBWZlbmNlItkBCgZPcGVuZWQSJwoFZW50"
        "cnkYASABKAsyES5mb3JlYmF5LnYxLkVudHJ5UgVlbnRyeRIeCgpnZW5lcmF0aW9uGAIgASgEUgpn"
        "ZW5lcmF0aW9uEi0KB2V4dGVudHMYAyABKAsyEy5mb3JlYmF5LnYxLkV4dGVudHNSB2V4dGVudHMS"
        "JQoOYWxyZWFkeV9jbG9zZWQYBCABKAhSDWFscmVhZHlDbG9zZWQSHAoJY29tbWl0dGVkGAUgASgE"
        "Ugljb21taXR0ZWQSEgoEdGllchgGIAEoDVIEdGllciJkCgxMZWFzZVJlcXVlc3QSFgoGYnVmZmVy"
        "GAEgASgJUgZidWZmZXISFAoFYnl0ZXMYAiABKANSBWJ5dGVzEhIKBGZpdHMYAyABKANSBGZpdHMS"
        "EgoEdGllchgEIAEoDVIEdGllciLNAQoFTGVhc2USDgoCaWQYASABKARSAmlkEioKBnJlZ2lvbhgC"
        "IAEoCzISLmZvcmViYXkudjEuUmVnaW9uUgZyZWdpb24SFgoGb2Zmc2V0GAMgASgDUgZvZmZzZXQS"
        "FgoGbGVuZ3RoGAQgASgDUgZsZW5ndGgSHQoKZGF0YV9zdGFydBgFIAEoA1IJZGF0YVN0YXJ0EiEK"
        "DHJlY29yZF9mbG9vchgGIAEoA1ILcmVjb3JkRmxvb3ISFgoGdGllcmVkGAcgASgIUgZ0aWVyZWQi"
        "HQoLUmV0dXJuTGVhc2USDgoCaWQYASABKARSAmlkIlYKBlJlZ2lvbhIOCgJpZBgBIAEoBFICaWQS"
        "EgoEcGF0aBgCIAEoCVIEcGF0aBIWCgZsZW5ndGgYAyABKANSBmxlbmd0aBIQCgNrZXkYBCABKAxS"
        "A2tleSLIAQoGQ29tbWl0EhYKBmhhbmRsZRgBIAEoBFIGaGFuZGxlEi8KB2V4dGVudHMYAiADKAsy"
        "FS5mb3JlYmF5LnYxLk5ld0V4dGVudFIHZXh0ZW50cxIUCgVjbG9zZRgDIAEoCFIFY2xvc2USFAoF"
        "YWJvcnQYBCABKAhSBWFib3J0EhkKCG10aW1lX25zGAUgASgDUgdtdGltZU5zEhYKBndyaXRlchgG"
        "IAEoBFIGd3JpdGVyEhYKBm51bWJlchgHIAEoBFIGbnVtYmVyIp0BCglOZXdFeHRlbnQSHwoLZmls"
        "ZV9vZmZzZXQYASABKANSCmZpbGVPZmZzZXQSFgoGbGVuZ3RoGAIgASgDUgZsZW5ndGgSGgoIY2hl"
        "Y2tzdW0YAyABKARSCGNoZWNrc3VtEhQKBWxlYXNlGAQgASgEUgVsZWFzZRIlCg5zZWdtZW50X29m"
        "ZnNldBgFIAEoA1INc2VnbWVudE9mZnNldCJTCglDb21taXR0ZWQSEgoEc2l6ZRgBIAEoA1IEc2l6"
        "ZRIeCgpnZW5lcmF0aW9uGAIgASgEUgpnZW5lcmF0aW9uEhIKBGZpbGUYAyABKARSBGZpbGUiiAEK"
        "DkV4dGVudHNSZXF1ZXN0EhYKBmhhbmRsZRgBIAEoBFIGaGFuZGxlEhYKBm9mZnNldBgCIAEoA1IG"
        "b2Zmc2V0EhYKBmxlbmd0aBgDIAEoA1IGbGVuZ3RoEhYKBmlubGluZRgEIAEoCFIGaW5saW5lEhYK"
        "BmxheW91dBgFIAEoCFIGbGF5b3V0IqwBCgdFeHRlbnRzEhAKA3BpbhgBIAEoBFIDcGluEiwKB2V4"
        "dGVudHMYAiADKAsyEi5mb3JlYmF5LnYxLkV4dGVudFIHZXh0ZW50cxIsCgdyZWdpb25zGAMgAygL"
        "MhIuZm9yZWJheS52MS5SZWdpb25SB3JlZ2lvbnMSEgoEc2l6ZRgEIAEoA1IEc2l6ZRIfCgtkYXRh"
        "X2xlbmd0aBgFIAEoDVIKZGF0YUxlbmd0aCLTAQoGRXh0ZW50Eh8KC2ZpbGVfb2Zmc2V0GAEgASgD"
        "UgpmaWxlT2Zmc2V0EhYKBmxlbmd0aBgCIAEoA1IGbGVuZ3RoEhYKBnJlZ2lvbhgDIAEoBFIGcmVn"
        "aW9uEhYKBm9mZnNldBgEIAEoA1IGb2Zmc2V0EhoKCGNoZWNrc3VtGAUgASgEUghjaGVja3N1bRIh"
        "CgxjaGVja19vZmZzZXQYBiABKANSC2NoZWNrT2Zmc2V0EiEKDGNoZWNrX2xlbmd0aBgHIAEoA1IL"
        "Y2hlY2tMZW5ndGgiGwoFVW5waW4SEgoEcGlucxgBIAMoBFIEcGlucyIfCgVDbG9zZRIWCgZoYW5k"
        "bGUYASABKARSBmhhbmRsZSJ8CgVEcmFpbhIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchIdCgp0aW1l"
        "b3V0X25zGAIgASgDUgl0aW1lb3V0TnMSFAoFbG9jYWwYAyABKAhSBWxvY2FsEhAKA2tleRgEIAEo"
        "CVIDa2V5EhQKBWJlbG93GAUgASgJUgViZWxvdyKMAQoFU3RhZ2USFgoGYnVmZmVyGAEgASgJUgZi"
        "dWZmZXISEgoEcGF0aBgCIAEoCVIEcGF0aBIQCgN1cmwYAyABKAlSA3VybBIXCgdkcnlfcnVuGAQg"
        "ASgIUgZkcnlSdW4SGgoIcGFyYWxsZWwYBSABKA1SCHBhcmFsbGVsEhAKA2tleRgGIAEoCVIDa2V5"
        "Ii4KBlZlcmlmeRIQCgN1cmwYASABKAlSA3VybBISCgRkZWVwGAIgASgIUgRkZWVwIocECghQcm9n"
        "cmVzcxIfCgtmaWxlc190b3RhbBgBIAEoA1IKZmlsZXNUb3RhbBIdCgpmaWxlc19kb25lGAIgASgD"
        "UglmaWxlc0RvbmUSHwoLYnl0ZXNfdG90YWwYAyABKANSCmJ5dGVzVG90YWwSHQoKYnl0ZXNfZG9u"
        "ZRgEIAEoA1IJYnl0ZXNEb25lEiMKDWZpbGVzX3NraXBwZWQYBSABKANSDGZpbGVzU2tpcHBlZBIS"
        "CgRkb25lGAYgASgIUgRkb25lEisKBmZhaWxlZBgHIAMoCzITLmZvcmViYXkudjEuRmFpbHVyZVIG"
        "ZmFpbGVkEhIKBGhlbGQYCCADKAlSBGhlbGQSEgoEb3BlbhgJIAMoCVIEb3BlbhIdCgpoZWxkX3Rv"
        "dGFsGAogASgDUgloZWxkVG90YWwSHQoKb3Blbl90b3RhbBgLIAEoA1IJb3BlblRvdGFsEiEKDGZh"
        "aWxlZF90b3RhbBgMIAEoA1ILZmFpbGVkVG90YWwSHQoKbGFzdF9lcnJvchgNIAEoCVIJbGFzdEVy"
        "cm9yEhQKBW5hbWVzGA4gAygJUgVuYW1lcxIQCgNqb2IYDyABKAlSA2pvYhIbCgl0aW1lZF9vdXQY"
        "ECABKAhSCHRpbWVkT3V0EigKEGJ5dGVzX25vdF9jb3BpZWQYESABKANSDmJ5dGVzTm90Q29waWVk"
        "Il8KB0ZhaWx1cmUSEgoEcGF0aBgBIAEoCVIEcGF0aBISCgRraW5kGAIgASgNUgRraW5kEhYKBnJl"
        "YXNvbhgDIAEoCVIGcmVhc29uEhQKBWJ5dGVzGAQgASgDUgVieXRlcyIyCgpKb2JSZXF1ZXN0Eg4K"
        "AmlkGAEgASgJUgJpZBIUCgV3YXRjaBgCIAEoCFIFd2F0Y2giHgoISm9iUmVwbHkSEgoEanNvbhgB"
        "IAEoDFIEanNvbiIeCghMaWZldGltZRISCgRqc29uGAEgASgMUgRqc29uIo4BCgxMaWZldGltZU9w"
        "ZW4SEgoEanNvbhgBIAEoDFIEanNvbhIqCgZjcmVhdGUYAiADKAsyEi5mb3JlYmF5LnYxLkJ1ZmZl"
        "clIGY3JlYXRlEhYKBmF0dGFjaBgDIAEoCFIGYXR0YWNoEhQKBWJlZ2luGAQgASgIUgViZWdpbhIQ"
        "CgNyYW4YBSABKAhSA3JhbiJNCg1MaWZldGltZUxlYXZlEhAKA2tleRgBIAEoCVIDa2V5EhIKBG5v"
        "ZGUYAiABKAlSBG5vZGUSFgoGZmFpbGVkGAMgASgIUgZmYWlsZWQiagoLTGlmZXRpbWVFbmQSEAoD"
        "a2V5GAEgASgJUgNrZXkSFAoFaHVycnkYAiABKAhSBWh1cnJ5EhYKBmZhaWxlZBgDIAEoCFIGZmFp"
        "bGVkEhsKCXdoZW5fbGVmdBgEIAEoCFIId2hlbkxlZnQiTgoLTGlmZXRpbWVEdWUSEAoDa2V5GAEg"
        "ASgJUgNrZXkSFQoGZHVlX25zGAIgASgDUgVkdWVOcxIWCgZ3YXJuZWQYAyABKAhSBndhcm5lZCIv"
        "CglMaWZldGltZXMSEAoDa2V5GAEgASgJUgNrZXkSEAoDam9iGAIgASgJUgNqb2IizAIKA1R4bhIW"
        "CgZidWZmZXIYASABKAlSBmJ1ZmZlchIOCgJpZBgCIAEoCVICaWQSIAoLZGVzdGluYXRpb24YAyAB"
        "KAlSC2Rlc3RpbmF0aW9uEhAKA2tleRgEIAEoCVIDa2V5EhQKBXN0YXRlGAUgASgJUgVzdGF0ZRIS"
        "CgRwYXRoGAYgASgJUgRwYXRoEhAKA3VpZBgHIAEoDVIDdWlkEhAKA2dpZBgIIAEoDVIDZ2lkEh0K"
        "CmNyZWF0ZWRfbnMYCSABKANSCWNyZWF0ZWROcxIZCghlbmRlZF9ucxgKIAEoA1IHZW5kZWROcxIZ"
        "CghsZWFzZV9ucxgLIAEoA1IHbGVhc2VOcxIYCgdyZXBsYWNlGAwgAygJUgdyZXBsYWNlEhYKBnJl"
        "YXNvbhgNIAEoCVIGcmVhc29uEhQKBXRhc2tzGA4gASgNUgV0YXNrcyIrCgRUeG5zEiMKBHR4bnMY"
        "ASADKAsyDy5mb3JlYmF5LnYxLlR4blIEdHhucyJxCghUeG5CZWdpbhIWCgZidWZmZXIYASABKAlS"
        "BmJ1ZmZlchIgCgtkZXN0aW5hdGlvbhgCIAEoCVILZGVzdGluYXRpb24SEAoDa2V5GAMgASgJUgNr"
        "ZXkSGQoIbGVhc2VfbnMYBCABKANSB2xlYXNlTnMiMQoHVHhuTmFtZRIWCgZidWZmZXIYASABKAlS"
        "BmJ1ZmZlchIOCgJpZBgCIAEoCVICaWQiYAoIVHhuQWRvcHQSFgoGYnVmZmVyGAEgASgJUgZidWZm"
        "ZXISDgoCaWQYAiABKAlSAmlkEhIKBHRhc2sYAyABKAlSBHRhc2sSGAoHYXR0ZW1wdBgEIAEoCVIH"
        "YXR0ZW1wdCIkCgpUeG5BZG9wdGVkEhYKBndpbm5lchgBIAEoCVIGd2lubmVyImEKCVR4bkNvbW1p"
        "dBIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchIOCgJpZBgCIAEoCVICaWQSGAoHcmVwbGFjZRgDIAMo"
        "CVIHcmVwbGFjZRISCgR3YWl0GAQgASgIUgR3YWl0Ii8KBU5vZGVzEiYKBW5vZGVzGAEgAygLMhAu"
        "Zm9yZWJheS52MS5Ob2RlUgVub2RlcyLPAwoETm9kZRISCgRuYW1lGAEgASgJUgRuYW1lEhoKCGlu"
        "c3RhbmNlGAIgASgEUghpbnN0YW5jZRIUCgVzdGF0ZRgDIAEoCVIFc3RhdGUSGAoHc2Vzc2lvbhgE"
        "IAEoCVIHc2Vzc2lvbhIWCgZmYWJyaWMYBSABKAlSBmZhYnJpYxIUCgVhZG1pbhgGIAEoCVIFYWRt"
        "aW4SHwoLbWluX3ZlcnNpb24YByABKA1SCm1pblZlcnNpb24SHwoLbWF4X3ZlcnNpb24YCCABKA1S"
        "Cm1heFZlcnNpb24SFgoGc2VydmVyGAkgASgJUgZzZXJ2ZXISFgoGbWVtb3J5GAogASgDUgZtZW1v"
        "cnkSHwoLbWVtb3J5X2ZyZWUYCyABKANSCm1lbW9yeUZyZWUSIQoMbWVtb3J5X2RpcnR5GAwgASgD"
        "UgttZW1vcnlEaXJ0eRISCgRkaXNrGA0gASgDUgRkaXNrEhsKCWRpc2tfZnJlZRgOIAEoA1IIZGlz"
        "a0ZyZWUSHQoKZGlza19kaXJ0eRgPIAEoA1IJZGlza0RpcnR5EhkKCHNpbmNlX25zGBAgASgDUgdz"
        "aW5jZU5zEhgKB3JlZnVzZWQYESABKAlSB3JlZnVzZWQiHgoITm9kZU5hbWUSEgoEbmFtZRgBIAEo"
        "CVIEbmFtZSJFCglOb2RlRHJhaW4SEgoEbmFtZRgBIAEoCVIEbmFtZRIUCgVsb2NhbBgCIAEoCFIF"
        "bG9jYWwSDgoCdG8YAyADKAlSAnRvIpMBCg1Ob2RlRm9yZ290dGVuEiUKBGxvc3QYASADKAsyES5m"
        "b3JlYmF5LnYxLkVudHJ5UgRsb3N0Eh0KCmxvc3RfdG90YWwYAiABKANSCWxvc3RUb3RhbBIdCgps"
        "b3N0X2J5dGVzGAMgASgDUglsb3N0Qnl0ZXMSHQoKa2VwdF90b3RhbBgEIAEoA1IJa2VwdFRvdGFs"
        "IkcKDFRva2VuUmVxdWVzdBIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchIfCgtsaWZldGltZV9ucxgC"
        "IAEoA1IKbGlmZXRpbWVOcyI8CgVUb2tlbhIUCgV0b2tlbhgBIAEoDFIFdG9rZW4SHQoKZXhwaXJl"
        "c19ucxgCIAEoA1IJZXhwaXJlc05zIkwKBEhvbGQSFgoGYnVmZmVyGAEgASgJUgZidWZmZXISFAoF"
        "cGF0aHMYAiADKAlSBXBhdGhzEhYKBmZyZWV6ZRgDIAEoCFIGZnJlZXplIpIBCgRUYWtlEhYKBmJ1"
        "ZmZlchgBIAEoCVIGYnVmZmVyEhAKA2RpchgCIAEoBFIDZGlyEhIKBG5hbWUYAyABKAlSBG5hbWUS"
        "EgoEZmlsZRgEIAEoBFIEZmlsZRIeCgpnZW5lcmF0aW9uGAUgASgEUgpnZW5lcmF0aW9uEhgKB3Jl"
        "cGxpY2EYBiABKAhSB3JlcGxpY2EiSQoHUmVjaGVjaxIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchIS"
        "CgRwYXRoGAIgASgJUgRwYXRoEhIKBHRyZWUYAyABKAhSBHRyZWUivwEKC1BsYWNlUmVuYW1lEhYK"
        "BmJ1ZmZlchgBIAEoCVIGYnVmZmVyEhkKCGZyb21fZGlyGAIgASgEUgdmcm9tRGlyEhsKCWZyb21f"
        "bmFtZRgDIAEoCVIIZnJvbU5hbWUSFQoGdG9fZGlyGAQgASgEUgV0b0RpchIXCgd0b19uYW1lGAUg"
        "ASgJUgZ0b05hbWUSFgoGZXhwZWN0GAYgASgEUgZleHBlY3QSGAoHcmVwbGFjZRgHIAEoCFIHcmVw"
        "bGFjZSJjCgtQbGFjZVJlbW92ZRIWCgZidWZmZXIYASABKAlSBmJ1ZmZlchIQCgNkaXIYAiABKARS"
        "A2RpchISCgRuYW1lGAMgASgJUgRuYW1lEhYKBmV4cGVjdBgEIAEoBFIGZXhwZWN0IlUKB0Rpc2Nh"
        "cmQSFgoGYnVmZmVyGAEgASgJUgZidWZmZXISEgoEZmlsZRgCIAEoBFIEZmlsZRIeCgpnZW5lcmF0"
        "aW9uGAMgASgEUgpnZW5lcmF0aW9uIuABCglSZXBsaWNhdGUSFgoGYnVmZmVyGAEgASgJUgZidWZm"
        "ZXISEgoEZmlsZRgCIAEoBFIEZmlsZRIeCgpnZW5lcmF0aW9uGAMgASgEUgpnZW5lcmF0aW9uEhQK"
        "BXdob2xlGAQgASgIUgV3aG9sZRIvCgdleHRlbnRzGAUgAygLMhUuZm9yZWJheS52MS5OZXdFeHRl"
        "bnRSB2V4dGVudHMSFAoFcGFydHMYBiABKARSBXBhcnRzEhYKBmJlZm9yZRgHIAEoDVIGYmVmb3Jl"
        "EhIKBG1vcmUYCCABKAhSBG1vcmUqxQgKBFR5cGUSFAoQVFlQRV9VTlNQRUNJRklFRBAAEg4KClRZ"
        "UEVfSEVMTE8QARIPCgtUWVBFX0NBTkNFTBACEg4KClRZUEVfUFJPVkUQBRIOCgpUWVBFX1BVTFNF"
        "EAYSDwoLVFlQRV9TVEFUVVMQAxISCg5UWVBFX1NVQlNDUklCRRAEEhYKElRZUEVfQlVGRkVSX0NS"
        "RUFURRAKEhMKD1RZUEVfQlVGRkVSX0dFVBALEhQKEFRZUEVfQlVGRkVSX0xJU1QQDBIXChNUWVBF"
        "X0JVRkZFUl9ERVNUUk9ZEA0SDQoJVFlQRV9TVEFUEBQSDQoJVFlQRV9MSVNUEBUSDgoKVFlQRV9N"
        "S0RJUhAWEg8KC1RZUEVfUkVOQU1FEBcSDwoLVFlQRV9SRU1PVkUQGBIQCgxUWVBFX1NFVEFUVFIQ"
        "GRINCglUWVBFX0xPU1QQGhINCglUWVBFX09QRU4QHhIPCgtUWVBFX0NPTU1JVBAfEhAKDFRZUEVf"
        "RVhURU5UUxAgEg4KClRZUEVfVU5QSU4QIRIOCgpUWVBFX0NMT1NFECISDgoKVFlQRV9MRUFTRRAj"
        "Eg8KC1RZUEVfUkVUVVJOECQSDgoKVFlQRV9EUkFJThAoEhEKDVRZUEVfU1RBR0VfSU4QKRISCg5U"
        "WVBFX1NUQUdFX09VVBAqEg8KC1RZUEVfVkVSSUZZECsSEAoMVFlQRV9SRUNFSVBUECwSDgoKVFlQ"
        "RV9OT0RFUxAyEhMKD1RZUEVfTk9ERV9EUkFJThAzEhUKEVRZUEVfTk9ERV9VTkRSQUlOEDASFAoQ"
        "VFlQRV9OT0RFX0ZPUkdFVBA0EhIKDlRZUEVfTk9ERV9MT1NTEC8SDgoKVFlQRV9UT0tFThA1Eg0K"
        "CVRZUEVfSk9CUxA2EgwKCFRZUEVfSk9CEDcSEwoPVFlQRV9KT0JfQ0FOQ0VMEDgSFgoSVFlQRV9M"
        "SUZFVElNRV9PUEVOEDkSFwoTVFlQRV9MSUZFVElNRV9MRUFWRRA6EhUKEVRZUEVfTElGRVRJTUVf"
        "RU5EEDsSFQoRVFlQRV9MSUZFVElNRV9EVUUQLhISCg5UWVBFX0xJRkVUSU1FUxAtEhIKDlRZUEVf"
        "VFhOX0JFR0lOEEYSEgoOVFlQRV9UWE5fQURPUFQQRxITCg9UWVBFX1RYTl9DT01NSVQQSBISCg5U"
        "WVBFX1RYTl9BQk9SVBBJEhIKDlRZUEVfVFhOX1JFTkVXEEoSEAoMVFlQRV9UWE5fR0VUEEsSEQoN"
        "VFlQRV9UWE5fTElTVBBMEg0KCVRZUEVfSE9MRBA8Eg0KCVRZUEVfVEFLRRA9EhAKDFRZUEVfRElT"
        "Q0FSRBA+EhIKDlRZUEVfUkVQTElDQVRFED8SEAoMVFlQRV9SRUNIRUNLEEASFQoRVFlQRV9QTEFD"
        "RV9SRU5BTUUQQRIVChFUWVBFX1BMQUNFX1JFTU9WRRBCQhdaFWZvcmViYXkvaW50ZXJuYWwvd2ly"
        "ZWIGcHJvdG8z"
    )
)
_classes = message_factory.GetMessageClassesForFiles(["internal/wire/forebay.proto"], _pool)

TYPE_UNSPECIFIED = 0
TYPE_HELLO = 1
TYPE_CANCEL = 2
TYPE_PROVE = 5
TYPE_PULSE = 6
TYPE_STATUS = 3
TYPE_SUBSCRIBE = 4
TYPE_BUFFER_CREATE = 10
TYPE_BUFFER_GET = 11
TYPE_BUFFER_LIST = 12
TYPE_BUFFER_DESTROY = 13
TYPE_STAT = 20
TYPE_LIST = 21
TYPE_MKDIR = 22
TYPE_RENAME = 23
TYPE_REMOVE = 24
TYPE_SETATTR = 25
TYPE_LOST = 26
TYPE_OPEN = 30
TYPE_COMMIT = 31
TYPE_EXTENTS = 32
TYPE_UNPIN = 33
TYPE_CLOSE = 34
TYPE_LEASE = 35
TYPE_RETURN = 36
TYPE_DRAIN = 40
TYPE_STAGE_IN = 41
TYPE_STAGE_OUT = 42
TYPE_VERIFY = 43
TYPE_RECEIPT = 44
TYPE_NODES = 50
TYPE_NODE_DRAIN = 51
TYPE_NODE_UNDRAIN = 48
TYPE_NODE_FORGET = 52
TYPE_NODE_LOSS = 47
TYPE_TOKEN = 53
TYPE_JOBS = 54
TYPE_JOB = 55
TYPE_JOB_CANCEL = 56
TYPE_LIFETIME_OPEN = 57
TYPE_LIFETIME_LEAVE = 58
TYPE_LIFETIME_END = 59
TYPE_LIFETIME_DUE = 46
TYPE_LIFETIMES = 45
TYPE_TXN_BEGIN = 70
TYPE_TXN_ADOPT = 71
TYPE_TXN_COMMIT = 72
TYPE_TXN_ABORT = 73
TYPE_TXN_RENEW = 74
TYPE_TXN_GET = 75
TYPE_TXN_LIST = 76
TYPE_HOLD = 60
TYPE_TAKE = 61
TYPE_DISCARD = 62
TYPE_REPLICATE = 63
TYPE_RECHECK = 64
TYPE_PLACE_RENAME = 65
TYPE_PLACE_REMOVE = 66

Empty = _classes["forebay.v1.Empty"]
Hello = _classes["forebay.v1.Hello"]
Challenge = _classes["forebay.v1.Challenge"]
Prove = _classes["forebay.v1.Prove"]
Pulse = _classes["forebay.v1.Pulse"]
Welcome = _classes["forebay.v1.Welcome"]
Error = _classes["forebay.v1.Error"]
Cancel = _classes["forebay.v1.Cancel"]
StatusRequest = _classes["forebay.v1.StatusRequest"]
StatusReply = _classes["forebay.v1.StatusReply"]
Subscribe = _classes["forebay.v1.Subscribe"]
Event = _classes["forebay.v1.Event"]
BufferName = _classes["forebay.v1.BufferName"]
BufferDestroy = _classes["forebay.v1.BufferDestroy"]
Buffers = _classes["forebay.v1.Buffers"]
Buffer = _classes["forebay.v1.Buffer"]
TierRule = _classes["forebay.v1.TierRule"]
Entry = _classes["forebay.v1.Entry"]
Entries = _classes["forebay.v1.Entries"]
Flushed = _classes["forebay.v1.Flushed"]
PathRequest = _classes["forebay.v1.PathRequest"]
ListRequest = _classes["forebay.v1.ListRequest"]
ListReply = _classes["forebay.v1.ListReply"]
Mkdir = _classes["forebay.v1.Mkdir"]
Rename = _classes["forebay.v1.Rename"]
Remove = _classes["forebay.v1.Remove"]
Removed = _classes["forebay.v1.Removed"]
SetAttr = _classes["forebay.v1.SetAttr"]
Open = _classes["forebay.v1.Open"]
Opened = _classes["forebay.v1.Opened"]
LeaseRequest = _classes["forebay.v1.LeaseRequest"]
Lease = _classes["forebay.v1.Lease"]
ReturnLease = _classes["forebay.v1.ReturnLease"]
Region = _classes["forebay.v1.Region"]
Commit = _classes["forebay.v1.Commit"]
NewExtent = _classes["forebay.v1.NewExtent"]
Committed = _classes["forebay.v1.Committed"]
ExtentsRequest = _classes["forebay.v1.ExtentsRequest"]
Extents = _classes["forebay.v1.Extents"]
Extent = _classes["forebay.v1.Extent"]
Unpin = _classes["forebay.v1.Unpin"]
Close = _classes["forebay.v1.Close"]
Drain = _classes["forebay.v1.Drain"]
Stage = _classes["forebay.v1.Stage"]
Verify = _classes["forebay.v1.Verify"]
Progress = _classes["forebay.v1.Progress"]
Failure = _classes["forebay.v1.Failure"]
JobRequest = _classes["forebay.v1.JobRequest"]
JobReply = _classes["forebay.v1.JobReply"]
Lifetime = _classes["forebay.v1.Lifetime"]
LifetimeOpen = _classes["forebay.v1.LifetimeOpen"]
LifetimeLeave = _classes["forebay.v1.LifetimeLeave"]
LifetimeEnd = _classes["forebay.v1.LifetimeEnd"]
LifetimeDue = _classes["forebay.v1.LifetimeDue"]
Lifetimes = _classes["forebay.v1.Lifetimes"]
Txn = _classes["forebay.v1.Txn"]
Txns = _classes["forebay.v1.Txns"]
TxnBegin = _classes["forebay.v1.TxnBegin"]
TxnName = _classes["forebay.v1.TxnName"]
TxnAdopt = _classes["forebay.v1.TxnAdopt"]
TxnAdopted = _classes["forebay.v1.TxnAdopted"]
TxnCommit = _classes["forebay.v1.TxnCommit"]
Nodes = _classes["forebay.v1.Nodes"]
Node = _classes["forebay.v1.Node"]
NodeName = _classes["forebay.v1.NodeName"]
NodeDrain = _classes["forebay.v1.NodeDrain"]
NodeForgotten = _classes["forebay.v1.NodeForgotten"]
TokenRequest = _classes["forebay.v1.TokenRequest"]
Token = _classes["forebay.v1.Token"]
Hold = _classes["forebay.v1.Hold"]
Take = _classes["forebay.v1.Take"]
Recheck = _classes["forebay.v1.Recheck"]
PlaceRename = _classes["forebay.v1.PlaceRename"]
PlaceRemove = _classes["forebay.v1.PlaceRemove"]
Discard = _classes["forebay.v1.Discard"]
Replicate = _classes["forebay.v1.Replicate"]
